#include "regard/train/model_folder.h"

#include <ATen/ATen.h>

#include <span>

#include "regard/io/atomic_file.h"
#include "regard/io/safetensors.h"

namespace regard::train {

void save_model_folder(const std::filesystem::path& folder, const std::string& config,
                       const std::string& tokenizer, const std::vector<Parameters::Named>& parameters) {
  std::vector<io::Tensor> tensors;
  for (const Parameters::Named& named : parameters) {
    tensors.push_back(
        io::view(named.name, named.value.sizes().vec(),
                 std::span(named.value.const_data_ptr<float>(), static_cast<size_t>(named.value.numel()))));
  }
  if (!config.empty()) io::write_file_atomically(folder / "config.json", config);
  if (!tokenizer.empty()) io::write_file_atomically(folder / "tokenizer.json", tokenizer);
  io::write_safetensors(folder / "model.safetensors", tensors, {{"format", "pt"}});
}

}  // namespace regard::train

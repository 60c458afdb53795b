#include "regard/model/tokenizer.h"

#include "regard/io/e5_file.h"
#include "regard/io/gguf.h"
#include "regard/io/model_folder.h"
#include "regard/model/registry.h"
#include "regard/text/load.h"

namespace regard::model {

std::unique_ptr<text::Tokenizer> load_tokenizer(const std::string& name_or_path) {
  const ModelLocation location = find_model(name_or_path);
  switch (location.format) {
    case ModelFormat::gguf:
      return text::load_tokenizer(io::Gguf::open(location.path));
    case ModelFormat::e5:
      return text::load_tokenizer(io::E5File::open(location.path));
    case ModelFormat::folder:
      break;
  }
  return text::load_tokenizer(io::ModelFolder::open(location.path));
}

}  // namespace regard::model

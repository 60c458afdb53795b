#include "regard/train/language_model.h"

#include <ATen/ATen.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "regard/io/atomic_file.h"
#include "regard/io/error.h"
#include "regard/io/mapped_file.h"
#include "regard/io/safetensors.h"
#include "regard/layer/context.h"
#include "regard/model/config.h"
#include "regard/model/decoder.h"
#include "regard/text/load.h"
#include "regard/train/byte_tokenizer.h"

namespace regard::train {
namespace {

constexpr double kEpsilon = 1e-5;  // of the norms, as in Llama 3
// A window bounds what a row sees whatever the length, so that such a model may run on.
constexpr int64_t kLongest = int64_t{1} << 20;

std::string tokenizer_json_of(const std::string& name) {
  if (name == "bytes") return byte_tokenizer_json();
  const io::MappedFile file = io::MappedFile::open(std::filesystem::path(name) / "tokenizer.json");
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

std::string config_of(const DecoderRecipe& model, const TrainRecipe& train, size_t vocabulary) {
  const bool windowed = model.window > 0;
  nlohmann::json json = {{"model_type", windowed ? "mistral" : "llama"},
                         {"architectures", {windowed ? "MistralForCausalLM" : "LlamaForCausalLM"}},
                         {"num_hidden_layers", model.layers},
                         {"hidden_size", model.width},
                         {"num_attention_heads", model.heads},
                         {"num_key_value_heads", model.kv_heads},
                         {"head_dim", model.width / model.heads},
                         {"intermediate_size", model.feed_forward},
                         {"vocab_size", vocabulary},
                         {"max_position_embeddings", windowed ? kLongest : train.length},
                         {"hidden_act", "silu"},
                         {"rms_norm_eps", kEpsilon},
                         {"rope_theta", model.rope_base},
                         {"tie_word_embeddings", model.tied},
                         {"torch_dtype", "float32"}};
  if (windowed) json["sliding_window"] = model.window;
  return json.dump(2);
}

}  // namespace

LanguageModel::LanguageModel(const Recipe& recipe)
    : LanguageModel(std::get<LanguageModelRecipe>(recipe.task), recipe.train) {}

LanguageModel::LanguageModel(const LanguageModelRecipe& recipe, const TrainRecipe& train)
    : train_(train),
      tokenizer_json_(tokenizer_json_of(recipe.data.tokenizer)),
      tokenizer_(text::tokenizer_from_json(tokenizer_json_, "the tokenizer of " + recipe.data.tokenizer)),
      config_json_(config_of(recipe.model, train, tokenizer_->vocabulary_size())),
      parameters_(recipe.model.initialisation, "model.", train.seed) {
  const auto config = model::read_config(io::parse_json(config_json_, "config.json"), "config.json");
  model_ = model::make_decoder(config, parameters_, model::Naming::hugging_face);
  stream_ = std::make_unique<TokenStream>(tokens_of(recipe.data.train, nullptr), train.length, train.batch,
                                          train.seed);
  if (recipe.data.valid.empty()) return;
  int64_t bytes = 0;
  valid_ = tokens_of(recipe.data.valid, &bytes);
  if (static_cast<int64_t>(valid_.size()) <= train.length) {
    throw std::invalid_argument("the validation text has " + std::to_string(valid_.size()) +
                                " tokens; more than train.length (" + std::to_string(train.length) +
                                ") are needed");
  }
  valid_tokens_per_byte_ = static_cast<double>(valid_.size()) / static_cast<double>(bytes);
}

std::vector<int32_t> LanguageModel::tokens_of(const std::vector<std::filesystem::path>& paths,
                                              int64_t* bytes) const {
  std::vector<int32_t> out;
  for (const std::filesystem::path& path : paths) {
    const io::MappedFile file = io::MappedFile::open(path);
    const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    if (bytes != nullptr) *bytes += static_cast<int64_t>(text.size());
    try {
      const text::Encoding encoding = tokenizer_->encode(text);
      out.insert(out.end(), encoding.ids.begin(), encoding.ids.end());
    } catch (const text::InvalidUtf8& error) {
      io::fail(path.string(), error.what());
    }
  }
  return out;
}

at::Tensor LanguageModel::logits(const at::Tensor& ids) {
  layer::Context context;
  context.training = true;
  return model_->logits(model_->hidden({.ids = ids, .type_ids = {}, .lengths = {}}, context));
}

at::Tensor LanguageModel::loss(int64_t pass) {
  const TokenBatch batch = stream_->at(pass);
  return at::cross_entropy_loss(logits(batch.ids).flatten(0, 1), batch.next.flatten(), {},
                                at::Reduction::Mean, -100, train_.label_smoothing);
}

std::optional<Validation> LanguageModel::validate(int64_t /*step*/) {
  if (valid_.empty()) return std::nullopt;
  const at::NoGradGuard no_grad;
  Validation out;
  double sum = 0;
  for (const TokenBatch& batch :
       pieces_in_order(valid_, train_.length, train_.batch, train_.validation_pieces)) {
    sum +=
        at::cross_entropy_loss(logits(batch.ids).flatten(0, 1), batch.next.flatten(), {}, at::Reduction::Sum)
            .item<double>();
    out.tokens += batch.ids.numel();
  }
  out.loss = sum / static_cast<double>(out.tokens);
  out.bits_per_byte = out.loss / std::log(2.0) * valid_tokens_per_byte_;
  return out;
}

void LanguageModel::save(const std::filesystem::path& folder) const {
  std::vector<io::Tensor> tensors;
  for (const Parameters::Named& named : parameters_.all()) {
    tensors.push_back(
        io::view(named.name, named.value.sizes().vec(),
                 std::span(named.value.const_data_ptr<float>(), static_cast<size_t>(named.value.numel()))));
  }
  io::write_file_atomically(folder / "config.json", config_json_);
  io::write_file_atomically(folder / "tokenizer.json", tokenizer_json_);
  io::write_safetensors(folder / "model.safetensors", tensors, {{"format", "pt"}});
}

std::string LanguageModel::find_not_a_number(int64_t pass) {
  const at::NoGradGuard no_grad;
  for (const Parameters::Named& named : parameters_.all()) {
    if (!at::isfinite(named.value).all().item<bool>()) return "the parameter " + named.name;
  }
  layer::Context context;
  const std::vector<at::Tensor> states =
      model_->states({.ids = stream_->at(pass).ids, .type_ids = {}, .lengths = {}}, context);
  for (size_t i = 0; i < states.size(); ++i) {
    if (!at::isfinite(states[i]).all().item<bool>())
      return i == 0 ? "the embedding" : "layer " + std::to_string(i - 1);
  }
  return "the loss itself";
}

}  // namespace regard::train

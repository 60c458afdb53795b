#include "regard/train/language_model.h"

#include <ATen/ATen.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "regard/io/error.h"
#include "regard/io/mapped_file.h"
#include "regard/io/model_folder.h"
#include "regard/layer/context.h"
#include "regard/model/config.h"
#include "regard/model/decoder.h"
#include "regard/model/pool_heads.h"
#include "regard/model/weight_file.h"
#include "regard/text/load.h"
#include "regard/text/train_vocabulary.h"
#include "regard/train/answers.h"
#include "regard/train/byte_tokenizer.h"
#include "regard/train/decoder_config.h"
#include "regard/train/generated_task.h"
#include "regard/train/model_folder.h"
#include "regard/train/training_context.h"

namespace regard::train {
namespace {

constexpr int64_t kWatched = 2;  // texts that heads are watched on

std::string tokenizer_json_of(const TextRecipe& recipe) {
  if (recipe.task) return word_vocabulary(words_of(*recipe.task), text::kBosId);
  if (recipe.generated) {
    std::vector<std::string> words;
    for (int64_t item = 0; item < recipe.generated->items; ++item) words.push_back(std::to_string(item));
    return word_vocabulary(words);
  }
  if (recipe.tokenizer == "bytes") return byte_tokenizer_json();
  return io::read_text(std::filesystem::path(recipe.tokenizer) / "tokenizer.json");
}

std::vector<int64_t> counts_of(const std::vector<int32_t>& tokens, size_t vocabulary) {
  std::vector<int64_t> counts(vocabulary);
  for (const int32_t token : tokens) ++counts[static_cast<size_t>(token)];
  return counts;
}

}  // namespace

LanguageModel::LanguageModel(const Recipe& recipe)
    : LanguageModel(std::get<LanguageModelRecipe>(recipe.task), recipe.train) {}

LanguageModel::LanguageModel(const LanguageModelRecipe& recipe, const TrainRecipe& train)
    : recipe_(recipe),
      train_(train),
      tokenizer_json_(tokenizer_json_of(recipe.data)),
      tokenizer_(text::tokenizer_from_json(tokenizer_json_, "the tokenizer of " + recipe.data.tokenizer)),
      parameters_(recipe.model.initialisation, "model.", train.seed,
                  train.bf16 ? layer::Weight::Products::bf16 : layer::Weight::Products::f32) {
  const TextRecipe& data = recipe.data;
  const bool made = data.generated || data.task;
  int64_t bytes = 0;
  TokenText text = made ? made_up(data.generated_train, 0, bytes) : tokens_of(data.train, bytes);
  config_json_ = decoder_config(recipe.model, train, counts_of(text.tokens, tokenizer_->vocabulary_size()));
  auto config = model::read_config(io::parse_json(config_json_, "config.json"), "config.json");
  config.dropout = recipe.model.dropout;
  model_ = model::make_decoder(config, parameters_, model::Naming::hugging_face);
  stream_ = std::make_unique<TokenStream>(std::move(text), train.length, train.batch, train.seed);
  if (data.valid.empty() && data.generated_valid == 0) return;
  bytes = 0;
  valid_ = made ? made_up(data.generated_valid, 1, bytes) : tokens_of(data.valid, bytes);
  const auto tokens = static_cast<int64_t>(valid_.tokens.size());
  if (tokens <= train.length) {
    throw std::invalid_argument("the validation text has " + std::to_string(tokens) +
                                " tokens; more than train.length (" + std::to_string(train.length) +
                                ") are needed");
  }
  const int64_t learned = data.task ? std::count(valid_.learned.begin(), valid_.learned.end(), 1) : tokens;
  valid_tokens_per_byte_ = static_cast<double>(learned) / static_cast<double>(bytes);
}

// The words of a language as word_vocabulary() has them, special tokens first; its bytes are those of the
// words and a space each. Of a task the answers count, as in translation.
TokenText LanguageModel::made_up(int64_t count, uint64_t stream, int64_t& bytes) const {
  if (const std::optional<GeneratedTask>& task = recipe_.data.task) {
    const std::vector<TextPair> texts = generate(*task, count, stream);
    for (const TextPair& text : texts) bytes += static_cast<int64_t>(text.references.front().size());
    return answer_text(*tokenizer_, texts, train_.length);
  }
  TokenText out{.tokens = zipf_markov(*recipe_.data.generated, count, stream), .documents = {}};
  for (int32_t& token : out.tokens) {
    bytes += static_cast<int64_t>(std::to_string(token).size()) + 1;
    token += static_cast<int32_t>(text::kEosId) + 1;
  }
  return out;
}

TokenText LanguageModel::tokens_of(const std::vector<std::filesystem::path>& paths, int64_t& bytes) const {
  TokenText out;
  const std::string& separator = recipe_.data.documents;
  int32_t document = 0;
  for (const std::filesystem::path& path : paths) {
    const io::MappedFile file = io::MappedFile::open(path);
    const std::string_view text = file.text();
    bytes += static_cast<int64_t>(text.size());
    for (size_t begin = 0; begin < text.size();) {
      // A separator ends the document before it.
      size_t end = separator.empty() ? std::string_view::npos : text.find(separator, begin);
      end = end == std::string_view::npos ? text.size() : end + separator.size();
      try {
        const text::Encoding encoding = tokenizer_->encode(text.substr(begin, end - begin));
        out.tokens.insert(out.tokens.end(), encoding.ids.begin(), encoding.ids.end());
        if (!separator.empty()) out.documents.resize(out.tokens.size(), document++);
      } catch (const text::InvalidUtf8& error) {
        io::fail(path.string(), error.what());
      }
      begin = end;
    }
  }
  return out;
}

at::Tensor LanguageModel::cross_entropy(const at::Tensor& hidden, const at::Tensor& next, bool mean,
                                        double smoothing) {
  const at::Tensor targets = next.flatten();
  if (const layer::VocabularyHead* head = model_->vocabulary_head(); head != nullptr) {
    const at::Tensor rows = hidden.flatten(0, 1);
    at::Tensor logs;
    if ((targets == kNothing).any().item<bool>()) {
      const at::Tensor there = (targets != kNothing).nonzero().squeeze(1);
      logs = head->forward(rows.index_select(0, there), targets.index_select(0, there));
    } else {
      logs = head->forward(rows, targets);
    }
    return mean ? -logs.mean() : -logs.sum();
  }
  return at::cross_entropy_loss(model_->logits(hidden).flatten(0, 1), targets, {},
                                mean ? at::Reduction::Mean : at::Reduction::Sum, kNothing, smoothing);
}

at::Tensor LanguageModel::loss(int64_t pass) {
  const TokenBatch batch = stream_->at(pass);
  layer::LossTerms terms{
      .balance = recipe_.model.experts > 0 ? train_.balance : 0.0, .diversity = train_.diversity, .sum = {}};
  layer::Context context = training_context(train_, static_cast<uint64_t>(pass));
  if (terms.balance != 0 || terms.diversity != 0) context.terms = &terms;
  const at::Tensor loss =
      cross_entropy(model_->hidden(input_of(batch), context), batch.next, true, train_.label_smoothing);
  return terms.sum.defined() ? loss + terms.sum : loss;
}

int64_t LanguageModel::tokens(int64_t pass) {
  if (recipe_.data.documents.empty() && !recipe_.data.task) return train_.batch * train_.length;
  return stream_->at(pass).next.ne(kNothing).sum().item<int64_t>();
}

std::optional<Validation> LanguageModel::validate(int64_t /*step*/) {
  if (valid_.tokens.empty()) return std::nullopt;
  const at::NoGradGuard no_grad;
  Validation out;
  if (recipe_.data.task) {
    const AnswerQuality found =
        answer_quality(*model_, valid_, train_.length, train_.batch, train_.validation_pieces);
    out.loss = found.loss;
    out.bits_per_byte = found.loss / std::log(2.0) * valid_tokens_per_byte_;
    out.tokens = found.tokens;
    out.accuracy = found.accuracy;
    return out;
  }
  double sum = 0;
  for (const TokenBatch& batch :
       pieces_in_order(valid_, train_.length, train_.batch, train_.validation_pieces)) {
    layer::Context context;
    sum += cross_entropy(model_->hidden(input_of(batch), context), batch.next, false, 0).item<double>();
    out.tokens += (batch.next != kNothing).sum().item<int64_t>();
  }
  out.loss = sum / static_cast<double>(std::max<int64_t>(out.tokens, 1));
  out.bits_per_byte = out.loss / std::log(2.0) * valid_tokens_per_byte_;
  return out;
}

Heads LanguageModel::heads() {
  const at::NoGradGuard no_grad;
  // One batch, always the same: of the validation text, else of the first pass.
  const TokenBatch batch =
      valid_.tokens.empty() ? stream_->at(0) : pieces_in_order(valid_, train_.length, kWatched, kWatched)[0];
  lens::HeadWatch watch;
  layer::Context context;
  context.recorder = &watch;
  model_->hidden(input_of(batch), context);
  return heads_of(watch, recipe_.model.initialisation, recipe_.model.width);
}

void LanguageModel::begin_from(const std::filesystem::path& folder) {
  const at::NoGradGuard no_grad;
  const auto from = std::make_shared<const io::ModelFolder>(io::ModelFolder::open(folder));
  const model::TransformerConfig old = model::read_config(from->config(), from->config_source());
  const model::WeightFile weights(from);
  const int64_t size = recipe_.model.width / recipe_.model.heads;
  for (Parameters::Named& named : parameters_.published()) {
    at::Tensor& value = named.value;
    const bool keys =
        named.name.find(".k_proj.") != std::string::npos || named.name.find(".v_proj.") != std::string::npos;
    if (keys && old.kv_heads > recipe_.model.kv_heads && old.head_size == size) {
      const layer::Weight all = weights.matrix(named.name, old.kv_heads * size, value.size(1));
      const at::Tensor rows = all.gather(at::arange(all.rows(), at::kLong));
      value.copy_(model::pool_heads(rows, old.kv_heads, recipe_.model.kv_heads));
    } else {
      weights.take(named.name, value);
    }
  }
}

void LanguageModel::save(const std::filesystem::path& folder) const {
  save_model_folder(folder, config_json_, tokenizer_json_, parameters_.published());
}

}  // namespace regard::train

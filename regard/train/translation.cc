#include "regard/train/translation.h"

#include <ATen/ATen.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "regard/io/atomic_file.h"
#include "regard/io/json.h"
#include "regard/io/mapped_file.h"
#include "regard/layer/context.h"
#include "regard/model/load_translator.h"
#include "regard/model/translate.h"
#include "regard/text/load.h"
#include "regard/train/checkpoint.h"
#include "regard/train/model_folder.h"
#include "regard/train/smoothed_loss.h"
#include "regard/train/training_context.h"
#include "regard/train/translation_score.h"

namespace regard::train {
namespace {

constexpr uint64_t kTrainTexts = 0;
constexpr uint64_t kValidTexts = 1;
constexpr int64_t kWatched = 8;  // texts that heads are watched on

std::vector<TextPair> read_files(const std::vector<std::filesystem::path>& paths, bool swap) {
  std::vector<TextPair> out;
  for (const std::filesystem::path& path : paths) {
    std::vector<TextPair> one = read_parallel_text(path, swap);
    out.insert(out.end(), std::make_move_iterator(one.begin()), std::make_move_iterator(one.end()));
  }
  return out;
}

// A training that goes on has its vocabulary; before its first checkpoint a file may be of another recipe.
std::string learned_vocabulary(const std::vector<TextPair>& texts, const text::VocabularyOptions& options,
                               const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "tokenizer.json";
  if (newest_checkpoint(folder) && std::filesystem::exists(path)) return io::read_text(path);
  std::vector<std::string> sentences;
  for (const TextPair& pair : texts) {
    sentences.push_back(pair.source);
    sentences.insert(sentences.end(), pair.references.begin(), pair.references.end());
  }
  const std::string json = text::train_vocabulary(sentences, options);
  std::filesystem::create_directories(folder);
  io::write_file_atomically(path, json);
  return json;
}

std::string config_of(const TranslatorConfig& config, int64_t vocabulary) {
  return std::visit(
      [&](auto made) {
        made.vocabulary = vocabulary;
        made.bos = text::kBosId;
        made.eos = text::kEosId;
        made.pad = text::kPadId;
        return model::to_json(made).dump(2);
      },
      config);
}

Translation::MakeModel make_by(const TranslatorConfig& config) {
  return [&config](const model::WeightSource& weights, int64_t vocabulary) {
    return model::make_translator(io::parse_json(config_of(config, vocabulary), "config.json"), "config.json",
                                  weights);
  };
}

BatchOptions batch_options(const TranslatorRecipe& recipe, const TrainRecipe& train) {
  return {.tokens = train.batch_tokens, .max_length = recipe.data.max_length, .pad = text::kPadId};
}

}  // namespace

TranslationTexts read_texts(const ParallelRecipe& recipe, const std::filesystem::path& folder) {
  TranslationTexts out;
  if (recipe.generated) {
    out.train = generate(*recipe.generated, recipe.generated_train, kTrainTexts);
    if (recipe.generated_valid > 0)
      out.valid = generate(*recipe.generated, recipe.generated_valid, kValidTexts);
    out.tokenizer_json = word_vocabulary(words_of(*recipe.generated));
    return out;
  }
  out.train = read_files(recipe.train, recipe.swap);
  out.valid = read_files(recipe.valid, recipe.swap);
  if (out.train.empty()) throw std::invalid_argument("data.train holds no pair of texts");
  out.tokenizer_json = recipe.tokenizer.empty()
                           ? learned_vocabulary(out.train, recipe.vocabulary, folder)
                           : io::read_text(std::filesystem::path(recipe.tokenizer) / "tokenizer.json");
  return out;
}

Translation::Translation(const TranslatorRecipe& recipe, const TrainRecipe& train,
                         const std::filesystem::path& folder)
    : Translation(recipe, train, folder, make_by(recipe.model)) {
  config_json_ = config_of(recipe.model, static_cast<int64_t>(tokenizer_->vocabulary_size()));
}

Translation::Translation(const TranslatorRecipe& recipe, const TrainRecipe& train,
                         const std::filesystem::path& folder, const MakeModel& make)
    : recipe_(recipe),
      train_(train),
      parameters_(recipe.initialisation, "", train.seed,
                  train.bf16 ? layer::Weight::Products::bf16 : layer::Weight::Products::f32) {
  TranslationTexts texts = read_texts(recipe.data, folder);
  tokenizer_json_ = std::move(texts.tokenizer_json);
  tokenizer_ = text::tokenizer_from_json(tokenizer_json_, "the vocabulary");
  const text::SpecialIds& ids = tokenizer_->special_ids();
  if (ids.pad != text::kPadId || ids.bos != text::kBosId || ids.eos != text::kEosId) {
    throw std::invalid_argument("the tokenizer of " + recipe.data.tokenizer +
                                " does not begin with <pad>, <unk>, <s> and </s>, as vocabularies that were "
                                "learned here do");
  }
  model_ = make(parameters_, static_cast<int64_t>(tokenizer_->vocabulary_size()));
  const BatchOptions options = batch_options(recipe, train);
  batches_ = std::make_unique<PairBatches>(token_pairs(*tokenizer_, texts.train), options, train.seed);
  valid_texts_ = std::move(texts.valid);
  if (valid_texts_.empty()) return;
  valid_ = std::make_unique<PairBatches>(token_pairs(*tokenizer_, valid_texts_), options, train.seed);
  std::vector<const std::string*> references;  // by the numbers of their pairs
  for (const TextPair& pair : valid_texts_) {
    for (const std::string& reference : pair.references) references.push_back(&reference);
  }
  for (int64_t i = 0; i < valid_->per_pass(); ++i) {
    for (const int64_t number : valid_->numbers(i))
      valid_bytes_ += static_cast<int64_t>(references[static_cast<size_t>(number)]->size());
  }
}

Translation::Predicted Translation::predict(const PairBatch& batch, layer::Context& context) {
  at::Tensor hidden =
      model_->hidden({.ids = batch.source, .lengths = batch.source_lengths}, batch.target, context)
          .flatten(0, 1);
  at::Tensor targets = batch.next.flatten();
  if (batch.learned.numel() < targets.numel()) {  // padding need not be multiplied with the vocabulary
    hidden = hidden.index_select(0, batch.learned);
    targets = targets.index_select(0, batch.learned);
  }
  return {model_->logits(hidden), targets};
}

at::Tensor Translation::loss(int64_t pass) {
  layer::LossTerms terms{.diversity = train_.diversity, .sum = {}};
  layer::Context context = training_context(train_, kDropoutStream + static_cast<uint64_t>(pass));
  if (terms.diversity != 0) context.terms = &terms;
  const Predicted found = predict(batches_->at(pass), context);
  const at::Tensor loss =
      smoothed_loss(found.logits, found.targets, train_.label_smoothing, train_.smoothing, text::kPadId);
  return terms.sum.defined() ? loss + terms.sum : loss;
}

std::optional<Validation> Translation::validate(int64_t step) {
  if (!valid_) return std::nullopt;
  const at::NoGradGuard no_grad;
  Validation out;
  double sum = 0;
  for (int64_t i = 0; i < valid_->per_pass(); ++i) {
    layer::Context context;
    const Predicted found = predict(valid_->in_order(i), context);
    sum += at::cross_entropy_loss(found.logits, found.targets, {}, at::Reduction::Sum).item<double>();
    out.tokens += found.targets.numel();
  }
  out.loss = sum / static_cast<double>(out.tokens);
  out.bits_per_byte = sum / std::log(2.0) / static_cast<double>(valid_bytes_);
  if (train_.score_every == 0 || step % train_.score_every == 0 || step == train_.steps) score(out);
  return out;
}

void Translation::score(Validation& out) {
  const auto all = static_cast<int64_t>(valid_texts_.size());
  const auto count = static_cast<size_t>(train_.score_texts > 0 ? std::min(all, train_.score_texts) : all);
  std::vector<std::vector<int64_t>> sources;
  std::vector<std::vector<std::string>> references;
  for (const TextPair& pair : std::span(valid_texts_).first(count)) {
    const std::vector<int32_t> ids = source_ids(*tokenizer_, pair.source);
    if (static_cast<int64_t>(ids.size()) > recipe_.data.max_length) continue;  // left out in training, too
    sources.emplace_back(ids.begin(), ids.end());
    references.push_back(pair.references);
  }
  if (sources.empty()) return;
  model::TranslateOptions options;
  options.bos = text::kBosId;
  options.eos = text::kEosId;
  options.pad = text::kPadId;
  const std::vector<model::Translation> found = model::translate(*model_, sources, options);
  std::vector<std::string> translations;
  int64_t right = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    translations.push_back(tokenizer_->decode(found[i].ids));
    right += std::count(references[i].begin(), references[i].end(), translations.back()) > 0 ? 1 : 0;
  }
  out.accuracy = static_cast<double>(right) / static_cast<double>(found.size());
  if (recipe_.data.generated) return;
  out.bleu = bleu(translations, references, recipe_.data.bleu_tokens).score;
  out.chrf = chrf(translations, references);
}

// A recurrent decoder is no call over q and k: of it the weights of each step are seen.
Heads Translation::heads() {
  if (model_->cross_heads() == 0) return {};
  const at::NoGradGuard no_grad;
  const std::vector<std::string> names = model_->attention_names();
  lens::HeadWatch watch(names.empty() ? std::vector<std::string>{"cross 0"} : names);
  const PairBatches& texts = valid_ ? *valid_ : *batches_;
  const PairBatch batch = texts.in_order(texts.per_pass() / 2);
  for (int64_t row = 0; row < std::min(kWatched, batch.source.size(0)); ++row) {  // each without its padding
    const auto text = [&](const at::Tensor& of, const at::Tensor& ids) {
      return of[row].masked_select(ids[row] != text::kPadId).unsqueeze(0);
    };
    const model::Source source{.ids = text(batch.source, batch.source), .lengths = {}};
    const at::Tensor target = text(batch.target, batch.next);
    layer::Context context;
    if (!names.empty()) {
      context.recorder = &watch;
      model_->hidden(source, target, context);
      continue;
    }
    const auto decoding = model_->begin(source, target.size(1), context);
    std::vector<at::Tensor> weights;
    for (int64_t t = 0; t < target.size(1); ++t)
      weights.push_back(model_->step(*decoding, target.select(1, t), true).weights);
    watch.record(0, at::cat(weights).transpose(0, 1));
  }
  Heads out = heads_of(watch, recipe_.initialisation,
                       std::visit([](const auto& config) { return config.width; }, recipe_.model));
  const auto* transformer = std::get_if<model::TransformerTranslatorConfig>(&recipe_.model);
  out.post_norm = transformer != nullptr && transformer->norm_place == layer::NormPlace::post;
  return out;
}

void Translation::save(const std::filesystem::path& folder) const {
  save_model_folder(folder, config_json_, tokenizer_json_, parameters_.published());
}

}  // namespace regard::train

#include "regard/train/evaluate.h"

#include <ATen/ATen.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <utility>

#include "regard/model/generate.h"
#include "regard/model/translate.h"

namespace regard::train {
namespace {

constexpr int64_t kBatchTokens = 8192;
constexpr int64_t kLongestPiece = 1024;

// Sums that a quality is made of.
struct Losses {
  double sum = 0;
  int64_t tokens = 0;
};

// Of each text's references together.
std::vector<Losses> reference_losses(model::LoadedTranslator& translator,
                                     const std::vector<TextPair>& texts) {
  const at::NoGradGuard no_grad;
  std::vector<TokenPair> pairs = token_pairs(*translator.tokenizer, texts);
  std::vector<size_t> text_of;
  for (size_t i = 0; i < texts.size(); ++i) text_of.insert(text_of.end(), texts[i].references.size(), i);
  size_t longest = 2;
  for (const TokenPair& pair : pairs) longest = std::max({longest, pair.source.size(), pair.target.size()});
  const auto length = static_cast<int64_t>(longest);
  PairBatches batches(
      std::move(pairs),
      {.tokens = std::max(kBatchTokens, 2 * length), .max_length = length, .pad = translator.pad}, 0);
  std::vector<Losses> out(texts.size());
  for (int64_t i = 0; i < batches.per_pass(); ++i) {
    const PairBatch batch = batches.at(i);
    layer::Context context;
    const at::Tensor hidden = translator.model->hidden({.ids = batch.source, .lengths = batch.source_lengths},
                                                       batch.target, context);
    const at::Tensor losses =
        at::cross_entropy_loss(translator.model->logits(hidden.flatten(0, 1).index_select(0, batch.learned)),
                               batch.next.flatten().index_select(0, batch.learned), {}, at::Reduction::None);
    const auto* loss = losses.const_data_ptr<float>();
    const auto* place = batch.learned.const_data_ptr<int64_t>();
    const std::vector<int64_t> numbers = batches.numbers(i);
    for (int64_t j = 0; j < losses.numel(); ++j) {
      const auto row = static_cast<size_t>(place[j] / batch.next.size(1));
      Losses& of = out[text_of[static_cast<size_t>(numbers[row])]];
      of.sum += loss[j];
      ++of.tokens;
    }
  }
  return out;
}

void check_continues(const model::Loaded& loaded) {
  if (!loaded.model->has_head() || !loaded.model->config().causal)
    throw std::invalid_argument("'" + loaded.name + "' is no language model that continues texts");
}

}  // namespace

TranslationReport evaluate(model::LoadedTranslator& translator, const std::vector<TextPair>& texts,
                           const EvaluateOptions& options) {
  if (texts.empty()) throw std::invalid_argument("there are no texts to translate");
  std::vector<std::vector<int64_t>> sources;
  for (const TextPair& pair : texts) {
    const std::vector<int32_t> ids = source_ids(*translator.tokenizer, pair.source);
    sources.emplace_back(ids.begin(), ids.end());
  }
  model::TranslateOptions how;
  how.bos = translator.bos;
  how.eos = translator.eos;
  how.pad = translator.pad;
  how.beam = options.beam;
  how.length_penalty = options.length_penalty;
  how.progress = options.progress;
  const std::vector<model::Translation> found = model::translate(*translator.model, sources, how);
  const std::vector<Losses> losses = reference_losses(translator, texts);

  TranslationReport out;
  std::map<size_t, std::vector<size_t>> buckets;  // texts of each
  for (size_t i = 0; i < found.size(); ++i) {
    out.translations.push_back(translator.tokenizer->decode(found[i].ids));
    const auto length = static_cast<int64_t>(sources[i].size()) - 1;
    const auto bucket = std::lower_bound(options.longest.begin(), options.longest.end(), length);
    buckets[static_cast<size_t>(bucket - options.longest.begin())].push_back(i);
  }
  const auto quality_of = [&](const std::vector<size_t>& which) {
    TranslationQuality quality;
    std::vector<std::string> translations;
    std::vector<std::vector<std::string>> references;
    double sum = 0;
    int64_t right = 0;
    for (const size_t i : which) {
      translations.push_back(out.translations[i]);
      references.push_back(texts[i].references);
      sum += losses[i].sum;
      quality.tokens += losses[i].tokens;
      const auto& known = references.back();
      right += std::find(known.begin(), known.end(), translations.back()) != known.end() ? 1 : 0;
    }
    quality.texts = static_cast<int64_t>(which.size());
    quality.bleu = bleu(translations, references, options.bleu_tokens).score;
    quality.chrf = chrf(translations, references);
    quality.accuracy = static_cast<double>(right) / static_cast<double>(which.size());
    quality.loss = sum / static_cast<double>(quality.tokens);
    return quality;
  };
  std::vector<size_t> all;
  for (const auto& [index, which] : buckets) {
    const int64_t shortest = index == 0 ? 0 : options.longest[index - 1] + 1;
    const int64_t longest = index < options.longest.size() ? options.longest[index] : INT64_MAX;
    double tokens = 0;
    for (const size_t i : which) tokens += static_cast<double>(sources[i].size()) - 1;
    out.by_length.push_back(
        {shortest, longest, tokens / static_cast<double>(which.size()), quality_of(which)});
    all.insert(all.end(), which.begin(), which.end());
  }
  std::sort(all.begin(), all.end());
  out.all = quality_of(all);
  return out;
}

AnswerQuality evaluate(const model::Loaded& loaded, const std::vector<TextPair>& texts) {
  check_continues(loaded);
  const int64_t length = std::min(loaded.model->config().max_positions, kLongestPiece);
  return answer_quality(*loaded.model, answer_text(*loaded.tokenizer, texts, length), length,
                        kBatchTokens / length);
}

TextQuality evaluate(const model::Loaded& loaded, std::string_view text, int64_t length,
                     const std::function<void(int64_t done, int64_t all)>& progress) {
  check_continues(loaded);
  const int64_t longest = loaded.model->config().max_positions;
  if (length == 0) length = std::min(longest, kLongestPiece);
  if (length < 2 || length > longest) {
    throw std::invalid_argument("a piece has " + std::to_string(length) + " tokens; allowed is 2 to " +
                                std::to_string(longest));
  }
  const std::vector<int64_t> ids = loaded.tokenizer->encode(text).ids;
  const auto count = static_cast<int64_t>(ids.size());
  if (count < 2) {
    throw std::invalid_argument("a text of at least 2 tokens is needed, this one has " +
                                std::to_string(count));
  }
  TextQuality out;
  double sum = 0;
  for (int64_t begin = 0; begin + 1 < count; begin += length - 1) {
    const std::vector<int64_t> piece(ids.begin() + begin, ids.begin() + std::min(begin + length, count));
    layer::Context context;
    for (const double loss : model::token_losses(*loaded.model, piece, context)) {
      sum += loss;
      ++out.tokens;
    }
    if (progress) progress(out.tokens, count - 1);
  }
  out.bytes = static_cast<int64_t>(text.size());
  out.loss = sum / static_cast<double>(out.tokens);
  out.bits_per_byte = sum / std::log(2.0) / static_cast<double>(out.bytes);
  return out;
}

}  // namespace regard::train

#include "regard/train/answers.h"

#include <ATen/ATen.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>

#include "regard/layer/context.h"
#include "regard/text/train_vocabulary.h"

namespace regard::train {

TokenText answer_text(const text::Tokenizer& tokenizer, const std::vector<TextPair>& texts, int64_t length) {
  TokenText out;
  int32_t document = 0;
  const auto add = [&](const std::vector<int32_t>& ids, bool learned) {
    out.tokens.insert(out.tokens.end(), ids.begin(), ids.end());
    out.documents.resize(out.tokens.size(), document);
    out.learned.resize(out.tokens.size(), learned ? 1 : 0);
  };
  const auto size = [&] { return static_cast<int64_t>(out.tokens.size()); };
  const auto pad = [&](int64_t count) {
    add(std::vector<int32_t>(static_cast<size_t>(count), text::kPadId), false);
    ++document;
  };
  for (const TextPair& pair : texts) {
    const text::Encoding encoding = tokenizer.encode(pair.source);
    const std::vector<int32_t> prompt(encoding.ids.begin(), encoding.ids.end());
    const std::vector<int32_t> answer = source_ids(tokenizer, pair.references.front());
    if (prompt.empty() || prompt.back() != text::kBosId || encoding.unknown > 0 ||
        std::count(answer.begin(), answer.end(), static_cast<int32_t>(text::kUnknownId)) > 0) {
      throw std::invalid_argument("the model's vocabulary is not that of a task with the text \"" +
                                  pair.source + "\"; train one with data.task");
    }
    const auto tokens = static_cast<int64_t>(prompt.size() + answer.size());
    if (tokens > length) {
      throw std::invalid_argument("a text of the task has " + std::to_string(tokens) +
                                  " tokens; the model takes at most " + std::to_string(length) +
                                  " (train.length)");
    }
    if (const int64_t left = length - size() % length; tokens > left) pad(left);
    add(prompt, false);
    add(answer, true);
    ++document;
  }
  pad((length - size() % length) % length);
  pad(1);  // what follows the last piece
  return out;
}

AnswerQuality answer_quality(model::Model& model, const TokenText& text, int64_t length, int64_t batch,
                             int64_t pieces) {
  const at::NoGradGuard no_grad;
  AnswerQuality out;
  double sum = 0;
  int64_t wrong_texts = 0;
  for (const TokenBatch& piece : pieces_in_order(text, length, batch, pieces)) {
    const at::Tensor places = piece.next.flatten().ne(kNothing).nonzero().squeeze(1);
    const at::Tensor targets = piece.next.flatten().index_select(0, places);
    layer::Context context;
    const at::Tensor hidden = model.hidden(input_of(piece), context).flatten(0, 1).index_select(0, places);
    const at::Tensor logits = model.logits(hidden);
    sum += at::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum).item<double>();
    // Each token is predicted from the true ones before it; where all are right, decoding goes the same way.
    const at::Tensor wrong = logits.argmax(-1).ne(targets);
    const at::Tensor rows = at::arange(piece.next.size(0), at::kLong).unsqueeze(1) * length;
    const at::Tensor text_of = (rows + piece.segments).flatten().index_select(0, places);
    const auto different = [](const at::Tensor& numbers) {
      return std::get<0>(at::unique_consecutive(numbers)).numel();
    };
    out.texts += different(text_of);
    wrong_texts += different(text_of.masked_select(wrong));
    out.tokens += targets.numel();
  }
  out.loss = sum / static_cast<double>(std::max<int64_t>(out.tokens, 1));
  out.accuracy =
      static_cast<double>(out.texts - wrong_texts) / static_cast<double>(std::max<int64_t>(out.texts, 1));
  return out;
}

}  // namespace regard::train

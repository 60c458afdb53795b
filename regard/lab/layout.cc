#include <ATen/ATen.h>

#include <cmath>

#include "regard/lab/columns.h"
#include "regard/lab/measures.h"
#include "regard/lab/tensors.h"
#include "regard/layer/multi_head.h"

// Texts that lie [batch, length, d] given to cross-attention that reads [length, batch, d], the default of
// the module that the article calls.
namespace regard::lab {
namespace {

constexpr int64_t kBatch = 3;
constexpr int64_t kLength = 4;
constexpr int64_t kWidth = 16;

// The same layer, told that the first axis is the sequence.
at::Tensor sequence_first(const layer::MultiHead& heads, const at::Tensor& text, const at::Tensor& image) {
  const at::Tensor memory = image.transpose(0, 1);
  return heads.forward(text.transpose(0, 1), memory, memory).transpose(0, 1);
}

}  // namespace

Result measure_layout(const Options& options) {
  Table table{"layout",
              "how far a change in one place moves the result of text 0",
              {text("changed"), count("seed"), number("batch first"), number("sequence first")},
              {}};
  const at::NoGradGuard no_gradients;
  bool right_apart = true, right_sees = true, wrong_mixes = false, wrong_blind = true;
  for (int64_t seed = 0; seed < options.seeds; ++seed) {
    at::manual_seed(static_cast<uint64_t>(seed));
    const layer::MultiHead heads(layer::MultiHeadOptions{.width = kWidth, .heads = 4});
    Draws draws(static_cast<uint64_t>(seed), 1);
    const at::Tensor text_input = normal(draws, {kBatch, kLength, kWidth}, at::kFloat);
    const at::Tensor image = normal(draws, {kBatch, kLength, kWidth}, at::kFloat);
    for (const bool other : {true, false}) {
      at::Tensor changed = image.clone();
      // Another text's image, at the same place; or the text's own image, at another place.
      if (other) {
        changed[1][0] += 1;
      } else {
        changed[0][kLength - 1] += 1;
      }
      const double first = difference(heads.forward(text_input, changed, changed)[0][0],
                                      heads.forward(text_input, image, image)[0][0]);
      const double wrong = difference(sequence_first(heads, text_input, changed)[0][0],
                                      sequence_first(heads, text_input, image)[0][0]);
      table.add(
          {std::string(other ? "another text's image" : "its own image, another place"), seed, first, wrong});
      if (other) {
        right_apart = right_apart && first == 0;
        wrong_mixes = wrong_mixes || wrong > 0;
      } else {
        right_sees = right_sees && first > 0;
        wrong_blind = wrong_blind && wrong == 0;
      }
    }
  }
  Result result;
  result.findings = {{"cross_attn(text, image, image) lets each word look at its own image.",
                      std::string(kEssence) + ", 5.2",
                      say("read as [length, batch, d] word 0 sees another text's image (%s) and not its own "
                          "at another place (%s); as "
                          "[batch, length, d] the reverse (%s)",
                          wrong_mixes ? "yes" : "no", wrong_blind ? "right" : "wrong",
                          right_apart && right_sees ? "yes" : "no"),
                      decided(!(wrong_mixes && wrong_blind && right_apart && right_sees))}};
  result.notes = {
      "Shapes alone do not tell: with as many texts as words nothing is refused. Regard's layers are batch "
      "first."};
  result.plots = {
      {"change of text 0's first word, seed 0",
       "",
       "",
       false,
       false,
       {"another text's image", "its own image"},
       {{"batch first", {}, {table.number(0, "batch first"), table.number(1, "batch first")}},
        {"sequence first", {}, {table.number(0, "sequence first"), table.number(1, "sequence first")}}}}};
  result.tables.push_back(std::move(table));
  return result;
}

}  // namespace regard::lab

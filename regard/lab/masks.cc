#include <ATen/ATen.h>

#include <cmath>

#include "regard/autograd/attention.h"
#include "regard/lab/columns.h"
#include "regard/lab/measures.h"
#include "regard/lab/tensors.h"

// One matrix, tril(ones), under the two articles' meanings of a mask, and what a row without keys becomes.
namespace regard::lab {
namespace {

constexpr int64_t kLength = 6;

struct Meaning {
  const char* name;
  bool true_blocks;
};
constexpr Meaning kMeanings[] = {{"true: to minus infinity", true}, {"0: to -1e9", false}};

// Softmax over scores as an article's code computes it.
at::Tensor weights(const at::Tensor& scores, const at::Tensor& mask, double value, bool true_blocks) {
  return scores.masked_fill(true_blocks ? mask : mask.logical_not(), value).softmax(-1);
}

}  // namespace

Result measure_masks(const Options&) {
  Draws draws(0, 1);
  const at::Tensor q = normal(draws, {1, 1, kLength, 8}, at::kFloat);
  const at::Tensor k = normal(draws, {1, 1, kLength, 8}, at::kFloat);
  const at::Tensor v = normal(draws, {1, 1, kLength, 4}, at::kFloat);
  const at::Tensor scores = at::matmul(q[0][0], k[0][0].t()) / std::sqrt(8.0);
  const at::Tensor tril = at::ones({kLength, kLength}, at::kBool).tril();

  Table table{"masks",
              "the keys that each row sees, with tril(ones) as the mask",
              {count("row"), number("series (10): past keys' weight", 3),
               number("series (10): later keys' weight", 3), number("essence: past keys' weight", 3),
               number("essence: later keys' weight", 3)},
              {}};
  double leaked[2] = {};
  at::Tensor seen[2];
  for (size_t m = 0; m < 2; ++m)
    seen[m] = weights(scores, tril, m == 0 ? -INFINITY : -1e9, kMeanings[m].true_blocks);
  for (int64_t i = 0; i < kLength; ++i) {
    std::vector<Cell> row = {i};
    for (size_t m = 0; m < 2; ++m) {
      const double past = seen[m][i].narrow(0, 0, i + 1).sum().item<double>();
      const double later = seen[m][i].narrow(0, i + 1, kLength - i - 1).sum().item<double>();
      row.emplace_back(past);
      row.emplace_back(later);
      if (std::isfinite(later)) leaked[m] += later;
    }
    table.add(std::move(row));
  }

  // A row that sees nothing.
  Table empty{
      "masks-empty-row", "a row that sees no key", {text("by"), text("weights"), number("|output|", 3)}, {}};
  at::Tensor none = at::ones({kLength, kLength}, at::kBool);
  none[2] = false;  // may not attend to anything
  const auto describe = [](const at::Tensor& row) {
    if (row.isnan().any().item<bool>()) return std::string("not a number");
    if (row.abs().max().item<double>() == 0) return std::string("all 0");
    const bool even = difference(row, at::full_like(row, 1.0 / static_cast<double>(row.size(0)))) < 1e-6;
    return std::string(even ? "even over all keys" : "some");
  };
  const at::Tensor by_infinity = weights(scores, none, -INFINITY, false);
  const at::Tensor by_number = weights(scores, none, -1e9, false);
  attention::Spec spec;
  spec.mask = attention::Mask::dense();
  autograd::AttentionExtras extras;
  extras.dense_mask = none.view({1, 1, kLength, kLength});
  at::Tensor lse;
  const at::Tensor ours = autograd::attention(spec, q, k, v, extras, &lse);
  const at::Tensor our_weights = autograd::weights(spec, q, k, lse, 0, 0, 0, kLength, 0, kLength, extras);
  const auto size = [&](const at::Tensor& row) { return at::matmul(row, v[0][0]).norm().item<double>(); };
  empty.add({std::string("minus infinity"), describe(by_infinity[2]), size(by_infinity[2])});
  empty.add({std::string("-1e9"), describe(by_number[2]), size(by_number[2])});
  empty.add({std::string("regard"), describe(our_weights[2]), ours[0][0][2].norm().item<double>()});

  // The right meaning: a later token changes nothing before it.
  const auto output = [&](const at::Tensor& values, bool true_blocks) {
    return at::matmul(weights(scores, tril, true_blocks ? -INFINITY : -1e9, true_blocks), values);
  };
  at::Tensor changed = v[0][0].clone();
  changed[kLength - 1] += 1;
  const double moved[2] = {difference(output(changed, true).narrow(0, 0, kLength - 1),
                                      output(v[0][0], true).narrow(0, 0, kLength - 1)),
                           difference(output(changed, false).narrow(0, 0, kLength - 1),
                                      output(v[0][0], false).narrow(0, 0, kLength - 1))};

  Result result;
  result.findings = {
      {"A mask means the same in both articles.",
       std::string(kSeries) + ", 2.2; " + kEssence + ", 3.1 and 3.2",
       say("with tril(ones) the first meaning gives later keys a weight of %.2f over all rows, the second "
           "%.2f: they are "
           "opposite",
           leaked[0], leaked[1]),
       decided(leaked[0] == 0 && leaked[1] == 0)},
      {"tril(ones) keeps a position from seeing later words.", std::string(kEssence) + ", 3.2",
       say("under that article's own meaning (0 blocks) another last value moves earlier outputs by %.1g; "
           "under the other "
           "article's by %.2g",
           moved[1], moved[0]),
       decided(moved[1] == 0)},
      {"Filling with -1e9 or with minus infinity is the same.",
       std::string(kSeries) + ", 2.2; " + kEssence + ", 3.1",
       "for rows that see a key, yes; a row that sees none gets " + describe(by_number[2]) + " by -1e9, " +
           describe(by_infinity[2]) + " by minus infinity, and here " + describe(our_weights[2]),
       decided(describe(by_infinity[2]) == describe(by_number[2]))}};
  result.notes = {"In Regard true = may attend, and Mask::causal names its alignment (docs/semantics.md)."};
  Curve first{"series (10): true blocks", {}, {}}, second{"essence: 0 blocks", {}, {}};
  for (size_t i = 0; i < table.rows.size(); ++i) {
    first.x.push_back(static_cast<double>(i));
    second.x.push_back(static_cast<double>(i));
    const double one = table.number(i, "series (10): later keys' weight");
    first.y.push_back(std::isfinite(one) ? one : 0);
    second.y.push_back(table.number(i, "essence: later keys' weight"));
  }
  result.plots = {
      {"weight on later words, tril(ones) as the mask", "row", "", false, false, {}, {first, second}}};
  result.tables = {std::move(table), std::move(empty)};
  return result;
}

}  // namespace regard::lab

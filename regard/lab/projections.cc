#include <ATen/ATen.h>

#include <cmath>

#include "regard/lab/columns.h"
#include "regard/lab/measures.h"
#include "regard/lab/tensors.h"

// Why x is not used itself: what scores look like without W_Q and W_K, with one matrix for both, and with
// two.
namespace regard::lab {
namespace {

constexpr int64_t kWidth = 64;
constexpr int64_t kKeySize = 32;

// |S - S^T| / |S|: 0 for a symmetric matrix, about sqrt(2) for one without symmetry.
double asymmetry(const at::Tensor& scores) {
  return ((scores - scores.t()).norm() / scores.norm()).item<double>();
}

// The share of rows whose largest score is their own.
double own_share(const at::Tensor& scores) {
  return (scores.argmax(-1) == at::arange(scores.size(0))).to(at::kDouble).mean().item<double>();
}

double own_weight(const at::Tensor& scores, int64_t key_size) {
  return (scores / std::sqrt(static_cast<double>(key_size))).softmax(-1).diagonal().mean().item<double>();
}

struct Row {
  std::string name;
  at::Tensor scores;
  int64_t key_size;
};

}  // namespace

Result measure_projections(const Options& options) {
  const int64_t n = options.size(256, 64);
  Table table{
      "projections",
      say("scores of %lld random positions, d = %lld, d_k = %lld", static_cast<long long>(n),
          static_cast<long long>(kWidth), static_cast<long long>(kKeySize)),
      {text("scores"), count("seed"), number("asymmetry", 3), number("rows whose own score is largest", 3),
       number("mean weight on itself", 3), number("distance from X X^T", 3)},
      {}};
  bool symmetric = true, equal_norms_win = true, others_lose = false, shared_symmetric = true,
       separate_free = true;
  double least_own = 1, shared_distance = INFINITY, own_weight_raw = 1, largest_separate_weight = 0;
  bool exchanged = false;
  double weight_moved = 0;
  std::vector<double> bars[2];
  std::vector<std::string> names;
  for (int64_t seed = 0; seed < options.seeds; ++seed) {
    Draws draws(static_cast<uint64_t>(seed), 1);
    const at::Tensor x = normal(draws, {n, kWidth});
    const at::Tensor unit = x / x.norm(2, -1, true) * std::sqrt(static_cast<double>(kWidth));
    // Norms as far apart as those of published token embeddings: a factor of e^N(0, 1/2).
    const at::Tensor uneven = unit * (0.5 * normal(draws, {n, 1})).exp();
    const double deviation = 1 / std::sqrt(static_cast<double>(kWidth));
    const at::Tensor w_q = normal(draws, {kWidth, kKeySize}, at::kDouble, deviation);
    const at::Tensor w_k = normal(draws, {kWidth, kKeySize}, at::kDouble, deviation);
    const at::Tensor raw = at::matmul(unit, unit.t());
    const at::Tensor q = at::matmul(unit, w_q);
    const Row rows[] = {{"X X^T, rows of equal length", raw, kWidth},
                        {"X X^T, rows of uneven length", at::matmul(uneven, uneven.t()), kWidth},
                        {"one matrix for Q and K", at::matmul(q, q.t()), kKeySize},
                        {"two matrices", at::matmul(q, at::matmul(unit, w_k).t()), kKeySize}};
    for (size_t i = 0; i < std::size(rows); ++i) {
      const Row& row = rows[i];
      const double away = ((row.scores - raw).norm() / raw.norm()).item<double>();
      const double uneven_rows = asymmetry(row.scores);
      const double own = own_share(row.scores);
      const double weight = own_weight(row.scores, row.key_size);
      table.add({row.name, seed, uneven_rows, own, weight, away});
      if (i < 3) symmetric = symmetric && uneven_rows < 1e-14;
      if (i == 0) {
        equal_norms_win = equal_norms_win && own == 1;
        own_weight_raw = std::min(own_weight_raw, weight);
      }
      if (i == 1) {
        others_lose = others_lose || own < 1;
        least_own = std::min(least_own, own);
      }
      if (i == 2) {
        shared_symmetric = shared_symmetric && uneven_rows < 1e-14;
        shared_distance = std::min(shared_distance, away);
      }
      if (i == 3) {
        separate_free = separate_free && uneven_rows > 0.5;
        largest_separate_weight = std::max(largest_separate_weight, weight);
      }
      if (seed == 0) {
        names.push_back(row.name);
        bars[0].push_back(own);
        bars[1].push_back(weight);
      }
    }
    // One W for all positions: does one position's x reach another's q, k or v?
    at::Tensor changed = unit.clone();
    changed[0] += 1;
    const at::Tensor moved = at::matmul(changed, w_q) - q;
    exchanged = exchanged || moved.narrow(0, 1, n - 1).abs().max().item<double>() != 0;
    // And through attention it does.
    const auto attended = [&](const at::Tensor& input) {
      const at::Tensor scores = at::matmul(at::matmul(input, w_q), at::matmul(input, w_k).t());
      return at::matmul((scores / std::sqrt(static_cast<double>(kKeySize))).softmax(-1), input);
    };
    weight_moved = std::max(
        weight_moved, difference(attended(changed).narrow(0, 1, n - 1), attended(unit).narrow(0, 1, n - 1)));
  }

  // q = W x with W of d x d_k, as it is printed.
  Table shapes{"projections-shapes",
               "q by a matrix of d x d_k",
               {text("product"), text("shapes"), text("defined")},
               {}};
  const at::Tensor w = at::zeros({kWidth, kKeySize});
  const at::Tensor column = at::zeros({kWidth, 1});
  const auto defined = [](const at::Tensor& a, const at::Tensor& b) { return a.size(1) == b.size(0); };
  const auto shape = [](const at::Tensor& a, const at::Tensor& b) {
    return say("[%lld, %lld] [%lld, %lld]", static_cast<long long>(a.size(0)),
               static_cast<long long>(a.size(1)), static_cast<long long>(b.size(0)),
               static_cast<long long>(b.size(1)));
  };
  const bool as_printed = defined(w, column);
  shapes.add({std::string("W x, as printed"), shape(w, column), std::string(as_printed ? "yes" : "no")});
  shapes.add(
      {std::string("W^T x"), shape(w.t(), column), std::string(defined(w.t(), column) ? "yes" : "no")});
  shapes.add({std::string("x W, x a row"), shape(column.t(), w),
              std::string(defined(column.t(), w) ? "yes" : "no")});

  Result result;
  const std::string where = std::string(kSeries) + ", 2.1";
  result.findings = {
      {"Without projections the scores are symmetric: A means to B what B means to A.", where,
       say("X X^T is its own transpose: %s", symmetric ? "yes, to the last digits" : "no"),
       decided(symmetric)},
      {"Without projections the diagonal is always the largest of its row.", where,
       say("for rows of equal length yes (Cauchy and Schwarz); for rows of uneven length only %.0f %% of "
           "them",
           100 * least_own),
       decided(equal_norms_win && !others_lose)},
      {"Then nearly all attention rests on the position itself.", where,
       say("mean weight on itself %.2f; with two matrices %.3f (even: %.3f)", own_weight_raw,
           largest_separate_weight, 1 / static_cast<double>(n)),
       decided(own_weight_raw > 0.5)},
      {"With one matrix for Q and K the scores are those of X with itself.", where,
       say("they are symmetric (%s), but X W W^T X^T is another matrix: it differs from X X^T by %.0f %% of "
           "its norm "
           "or more",
           shared_symmetric ? "yes" : "no", 100 * shared_distance),
       decided(shared_distance < 1e-6)},
      {"Two matrices let A look at B more than B at A.", where,
       say("|S - S^T| / |S| above 0.5: %s", separate_free ? "yes" : "no"), decided(separate_free)},
      {"By sharing one W between positions the positions have exchanged information.", where,
       say("another x at one position changes q of the others: %s; the results of attention: by up to %.2g",
           exchanged ? "yes" : "not by a bit", weight_moved),
       decided(exchanged)},
      {"q = W x with W in R^(d x d_k).", std::string(kFirstArticle) + ", 2.2",
       say("that product of [%lld, %lld] and [%lld, 1] %s; it is x W with x a row, or W^T x",
           static_cast<long long>(kWidth), static_cast<long long>(kKeySize), static_cast<long long>(kWidth),
           as_printed ? "is defined" : "is not defined unless d = d_k"),
       decided(as_printed)}};
  result.plots = {
      {"what scores look at without and with projections",
       "",
       "",
       false,
       false,
       names,
       {{"rows whose own score is largest", {}, bars[0]}, {"mean weight on itself", {}, bars[1]}}}};
  result.tables = {std::move(table), std::move(shapes)};
  return result;
}

}  // namespace regard::lab

#include "regard/kernel/softmax.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "regard/autograd/parallel.h"
#include "regard/lab/columns.h"
#include "regard/lab/distribution.h"
#include "regard/lab/draws.h"
#include "regard/lab/measures.h"

// Softmax by its three ways, what it does to the rank of a matrix of scores, and what it cannot do.
namespace regard::lab {
namespace {

using kernel::SoftmaxWay;

constexpr int64_t kRows = 64;

struct Way {
  SoftmaxWay way;
  const char* name;
};
constexpr Way kWays[] = {
    {SoftmaxWay::naive, "naive"}, {SoftmaxWay::safe, "safe"}, {SoftmaxWay::online, "online"}};

struct Run {
  std::vector<float> out;
  kernel::SoftmaxTraffic traffic;
};

Run run(SoftmaxWay way, bool log, const std::vector<float>& x, int64_t columns) {
  Run result{std::vector<float>(x.size()), {}};
  kernel::Serial serial;
  const auto rows = static_cast<int64_t>(x.size()) / columns;
  result.traffic = kernel::softmax(way, log, {rows, columns, columns}, x.data(), result.out.data(), serial);
  return result;
}

// The largest difference of a row's result from float64, over the largest weight.
double error(const Run& run, const std::vector<float>& x, int64_t columns) {
  double most = 0;
  for (size_t begin = 0; begin < x.size(); begin += static_cast<size_t>(columns)) {
    const std::vector<double> row(x.begin() + static_cast<int64_t>(begin),
                                  x.begin() + static_cast<int64_t>(begin) + columns);
    const std::vector<double> exact = softmax(row);
    for (size_t j = 0; j < exact.size(); ++j)
      most = std::max(most, std::abs(exact[j] - static_cast<double>(run.out[begin + j])));
  }
  return most;
}

double nanoseconds_an_element(SoftmaxWay way, const std::vector<float>& x, int64_t columns) {
  std::vector<double> times;
  for (int repeat = 0; repeat < 9; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    run(way, false, x, columns);
    times.push_back(
        std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count());
  }
  return median(times) / static_cast<double>(x.size());
}

int64_t rank(const at::Tensor& matrix) {
  return at::linalg_matrix_rank(matrix, 1e-10).item<int64_t>();
}

at::Tensor drawn(Draws& draws, int64_t rows, int64_t columns) {
  const std::vector<double> values = draws.normals(rows * columns);
  return at::tensor(values, at::kDouble).view({rows, columns});
}

double mean_entropy(const at::Tensor& weights) {
  return (-(weights * weights.clamp_min(1e-300).log()).sum(-1)).mean().item<double>() /
         std::log(static_cast<double>(weights.size(-1)));
}

// Softmax attention and linear attention of the same q and k: rank and entropy of their weights.
Table ranks(const Options& options, std::vector<double>& softmax_entropy,
            std::vector<double>& linear_entropy) {
  Table table{
      "softmax-rank",
      "64 positions: the rank of scores and of weights (singular values above 1e-10)",
      {count("d_k"), count("seed"), count("rank of Q K^T"), count("rank of softmax"),
       count("rank of linear attention"), number("H / ln n of softmax", 3), number("H / ln n of linear", 3)},
      {}};
  for (const int64_t d : {4, 8, 16, 32}) {
    for (int64_t seed = 0; seed < options.seeds; ++seed) {
      Draws draws(static_cast<uint64_t>(seed), static_cast<uint64_t>(d));
      const at::Tensor q = drawn(draws, kRows, d);
      const at::Tensor k = drawn(draws, kRows, d);
      const at::Tensor scores = at::matmul(q, k.t()) / std::sqrt(static_cast<double>(d));
      const at::Tensor weights = scores.softmax(-1);
      // Katharopoulos et al. 2020: the feature map elu(x) + 1.
      at::Tensor linear = at::matmul(at::elu(q) + 1, (at::elu(k) + 1).t());
      linear = linear / linear.sum(-1, true);
      table.add(
          {d, seed, rank(scores), rank(weights), rank(linear), mean_entropy(weights), mean_entropy(linear)});
      softmax_entropy.push_back(mean_entropy(weights));
      linear_entropy.push_back(mean_entropy(linear));
    }
  }
  return table;
}

}  // namespace

Result measure_softmax(const Options& options) {
  Result result;
  const int64_t columns = 1000;
  Draws draws(0, 1);
  std::vector<float> x;
  for (int64_t i = 0; i < options.size(64, 16) * columns; ++i)
    x.push_back(static_cast<float>(3 * draws.normal()));
  std::vector<float> large(8, 0.0F);
  large[0] = 1000;

  Table ways{"softmax-ways",
             "one row of x, by three ways: memory, accuracy, and a logit of 1000",
             {text("way"), number("reads of x", 0), number("writes", 0), number("bytes an element", 0),
              number("error against float64", -1), text("x = 1000"), number("ns an element", 2)},
             {}};
  double online_error = 0, safe_error = 0;
  bool naive_fails = false, safe_survives = true;
  const auto bytes = static_cast<double>(x.size() * sizeof(float));
  for (const Way& way : kWays) {
    const Run measured = run(way.way, false, x, columns);
    const auto read = static_cast<double>(measured.traffic.bytes_read);
    const auto written = static_cast<double>(measured.traffic.bytes_written);
    const bool survives = std::isfinite(run(way.way, false, large, 8).out[0]);
    const double wrong = error(measured, x, columns);
    if (way.way == SoftmaxWay::online) online_error = wrong;
    if (way.way == SoftmaxWay::safe) safe_error = wrong;
    (way.way == SoftmaxWay::naive ? naive_fails : safe_survives) =
        way.way == SoftmaxWay::naive ? !survives : safe_survives && survives;
    ways.add({std::string(way.name), read / bytes, written / bytes,
              (read + written) / static_cast<double>(x.size()), wrong,
              std::string(survives ? "finite" : "not a number"),
              nanoseconds_an_element(way.way, x, columns)});
  }

  // The first whole logit that exp alone cannot take in float32.
  int64_t limit = 1;
  const auto naive_takes = [](int64_t logit) {
    return std::isfinite(run(SoftmaxWay::naive, false, {static_cast<float>(logit), 0}, 2).out[0]);
  };
  while (limit < 1000 && naive_takes(limit)) ++limit;

  const std::vector<float> pair = {1000, 0};
  const double stable = run(SoftmaxWay::safe, true, pair, 2).out[1];
  const double late = std::log(static_cast<double>(run(SoftmaxWay::safe, false, pair, 2).out[1]));

  std::vector<double> softmax_entropy, linear_entropy;
  Table rank_table = ranks(options, softmax_entropy, linear_entropy);
  bool lifted = true, linear_bound = true;
  for (size_t row = 0; row < rank_table.rows.size(); ++row) {
    lifted = lifted && rank_table.number(row, "rank of Q K^T") <= rank_table.number(row, "d_k") &&
             rank_table.number(row, "rank of softmax") > rank_table.number(row, "rank of Q K^T");
    linear_bound =
        linear_bound && rank_table.number(row, "rank of linear attention") <= rank_table.number(row, "d_k");
  }

  // The least weight and the sum of a row, for logits as far apart as float64's exp reaches.
  Table zeros{"softmax-zero",
              "a row of 16 logits, the last one lower than the others by a gap",
              {number("gap", 0), number("least weight"), number("sum of weights", 6)},
              {}};
  double least = 1, sum_error = 0;
  for (const double gap : {1.0, 10.0, 100.0, 700.0}) {
    std::vector<double> logits(16, 0.0);
    logits.back() = -gap;
    const std::vector<double> weights = softmax(logits);
    double sum = 0;
    for (const double weight : weights) sum += weight;
    zeros.add({gap, weights.back(), sum});
    least = std::min(least, weights.back());
    sum_error = std::max(sum_error, std::abs(sum - 1));
  }

  result.findings = {
      {"The direct algorithm goes over a row twice.", std::string(kSeries) + ", 2.4",
       say("naive: %.0f reads; safe, which takes the maximum first: %.0f; online: %.0f, and its weights "
           "differ from float64 by %.1e (safe: %.1e)",
           ways.number(0, "reads of x"), ways.number(1, "reads of x"), ways.number(2, "reads of x"),
           online_error, safe_error),
       decided(ways.number(0, "reads of x") == 2 && online_error < 1e-6)},
      {"exp(x) / sum of exp(x), as it is written, can be computed so.", std::string(kSeries) + ", 2.4",
       say("from a logit of %lld on the naive way gives no number in float32; at 1000 the other two %s "
           "finite",
           static_cast<long long>(limit), safe_survives ? "stay" : "are not"),
       decided(!naive_fails && safe_survives)},
      {"Log-softmax is more than the logarithm of a softmax.", std::string(kSeries) + ", 2.4",
       say("x = (1000, 0): log-softmax gives %.0f, log(softmax) %.0f", stable, late),
       decided(stable == -1000 && std::isinf(late))},
      {"Softmax raises the rank of the matrix of scores; linear attention's stays low.",
       std::string(kSeries) + ", 2.4",
       say("d_k = 8: rank %.0f of Q K^T, %.0f of its softmax, %.0f of linear attention",
           rank_table.number(static_cast<size_t>(options.seeds), "rank of Q K^T"),
           rank_table.number(static_cast<size_t>(options.seeds), "rank of softmax"),
           rank_table.number(static_cast<size_t>(options.seeds), "rank of linear attention")),
       decided(lifted && linear_bound)},
      {"Linear attention's weights have the lower entropy.", std::string(kSeries) + ", 4.2 (one sentence)",
       say("H / ln n: softmax %s, linear %s on the same q and k", shown(spread(softmax_entropy), 3).c_str(),
           shown(spread(linear_entropy), 3).c_str()),
       larger(softmax_entropy, linear_entropy)},
      {"A head's weights can all be zero.", std::string(kEssence) + ", 4.2, problem 2",
       say("every row sums to 1 (off by %.0e at most) and the least weight is %.1e: a head can be idle, by "
           "small values "
           "or by resting on one token, but its weights are never all zero",
           sum_error, least),
       decided(!(least > 0 && sum_error < 1e-12))}};
  Curve plain{"softmax", {}, {}}, linear{"linear attention", {}, {}}, scores{"Q K^T", {}, {}};
  for (size_t row = 0; row < rank_table.rows.size(); row += static_cast<size_t>(options.seeds)) {
    for (auto* curve : {&scores, &plain, &linear}) curve->x.push_back(rank_table.number(row, "d_k"));
    scores.y.push_back(rank_table.number(row, "rank of Q K^T"));
    plain.y.push_back(rank_table.number(row, "rank of softmax"));
    linear.y.push_back(rank_table.number(row, "rank of linear attention"));
  }
  result.plots = {
      {"rank of a 64 x 64 matrix of weights", "d_k", "rank", true, false, {}, {scores, plain, linear}}};
  result.tables = {std::move(ways), std::move(rank_table), std::move(zeros)};
  return result;
}

}  // namespace regard::lab

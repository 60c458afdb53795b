#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "regard/autograd/attention.h"
#include "regard/lab/columns.h"
#include "regard/lab/measures.h"
#include "regard/lab/tensors.h"

// How far a gradient reaches, in how many steps that depend on each other, and what a layer costs (Vaswani et
// al. 2017, arXiv 1706.03762, table 1).
namespace regard::lab {
namespace {

constexpr int64_t kNear = 8;    // the restricted layer sees so many keys on each side
constexpr int64_t kKernel = 3;  // of the convolution
constexpr double kKeep = 3;     // a GRU's update gate biased so keeps 95 % of its state at a step

// One layer of each kind over x [1, n, d], with random weights. `steps` counts what had to wait for one
// another.
class Layers {
 public:
  Layers(int64_t width, uint64_t seed) : width_(width) {
    Draws draws(seed, 7);
    const double deviation = 1 / std::sqrt(static_cast<double>(width));
    for (at::Tensor* w : {&q_, &k_, &v_}) *w = normal(draws, {width, width}, at::kFloat, deviation);
    convolution_ = normal(draws, {width, width, kKernel}, at::kFloat, deviation / std::sqrt(1.0 * kKernel));
    for (size_t i = 0; i < 4; ++i) {
      // Uniform between +-1 / sqrt(d), as libtorch begins.
      const std::vector<int64_t> shape =
          i < 2 ? std::vector<int64_t>{3 * width, width} : std::vector<int64_t>{3 * width};
      std::vector<double> values(static_cast<size_t>(i < 2 ? 3 * width * width : 3 * width));
      for (double& value : values) value = (2 * draws.uniform() - 1) * deviation;
      gru_.push_back(at::tensor(values, at::kDouble).view(shape).to(at::kFloat));
    }
  }

  at::Tensor attention(const at::Tensor& x, const regard::attention::Mask& mask = {}) {
    ++steps;
    regard::attention::Spec spec;
    spec.mask = mask;
    const auto head = [](const at::Tensor& t) { return t.unsqueeze(1); };
    return autograd::attention(spec, head(at::matmul(x, q_)), head(at::matmul(x, k_)),
                               head(at::matmul(x, v_)))
        .squeeze(1);
  }
  at::Tensor restricted(const at::Tensor& x) {
    return attention(x, regard::attention::Mask::window(kNear, kNear, regard::attention::Align::top_left));
  }
  at::Tensor convolution(const at::Tensor& x, int64_t dilation = 1) {
    ++steps;
    return at::conv1d(x.transpose(1, 2), convolution_, {}, 1, dilation * (kKernel / 2), dilation)
        .transpose(1, 2);
  }
  at::Tensor gru(const at::Tensor& x, double keep = 0) {
    std::vector<at::Tensor> weights = gru_;
    weights[2] = weights[2].clone();
    weights[2].narrow(0, width_, width_) += keep;
    steps += x.size(1);
    return std::get<0>(at::gru(x, at::zeros({1, 1, width_}), weights, true, 1, 0.0, false, false, true));
  }

  int64_t steps = 0;

 private:
  int64_t width_;
  at::Tensor q_, k_, v_, convolution_;
  std::vector<at::Tensor> gru_;
};

// |d (r . out_last) / d x_j| for each j, from the last position back; r is random.
template <class Layer>
std::vector<double> reach(const at::Tensor& x, const at::Tensor& r, Layer&& layer) {
  const at::Tensor leaf = x.clone().requires_grad_(true);
  (layer(leaf)[0][x.size(1) - 1] * r).sum().backward();
  std::vector<double> out;
  for (int64_t back = 0; back < x.size(1); ++back)
    out.push_back(leaf.grad()[0][x.size(1) - 1 - back].norm().template item<double>());
  return out;
}

// Layers, one upon the other, until the last position's result depends on the first input.
template <class Layer>
int64_t layers_needed(const at::Tensor& x, Layer&& layer) {
  for (int64_t layers = 1; layers <= x.size(1); ++layers) {
    const at::Tensor leaf = x.clone().requires_grad_(true);
    at::Tensor at = leaf;
    for (int64_t i = 0; i < layers; ++i) at = layer(at, i);
    at[0][x.size(1) - 1].sum().backward();
    if (leaf.grad()[0][0].abs().max().template item<double>() > 0) return layers;
  }
  return -1;
}

template <class Run>
std::vector<double> milliseconds(Run&& run) {
  std::vector<double> out;
  for (int repeat = 0; repeat < 8; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    if (repeat > 0)
      out.push_back(
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  return out;
}

Table reach_table(const Options& options, Curve curves[3], double& gru_fall, double& keep_fall,
                  double& attention_fall) {
  const int64_t n = options.size(256, 128);
  const int64_t width = 32;
  std::vector<double> sums[3];
  for (auto& sum : sums) sum.assign(static_cast<size_t>(n), 0.0);
  for (int64_t seed = 0; seed < options.seeds; ++seed) {
    Layers layers(width, static_cast<uint64_t>(seed));
    Draws draws(static_cast<uint64_t>(seed), 1);
    const at::Tensor x = normal(draws, {1, n, width}, at::kFloat);
    const at::Tensor r = normal(draws, {width}, at::kFloat);
    const std::vector<double> found[] = {
        reach(x, r, [&](const at::Tensor& in) { return layers.gru(in); }),
        reach(x, r, [&](const at::Tensor& in) { return layers.gru(in, kKeep); }),
        reach(x, r, [&](const at::Tensor& in) { return layers.attention(in); })};
    for (size_t i = 0; i < 3; ++i) {
      for (size_t j = 0; j < found[i].size(); ++j)
        sums[i][j] += found[i][j] / static_cast<double>(options.seeds);
    }
  }
  Table table{"path-reach",
              say("gradient of the last position's result with respect to the input so far back, %lld "
                  "positions, new layers",
                  static_cast<long long>(n)),
              {count("distance"), number("GRU"), number("GRU that keeps"), number("attention")},
              {}};
  // A band of distances around each power of two: single positions differ.
  const auto around = [&](const std::vector<double>& values, int64_t distance) {
    const int64_t first = std::max<int64_t>(1, distance * 3 / 4);
    const auto from = values.begin() + first;
    const auto to = std::min(values.begin() + std::max(distance * 3 / 2, first + 1), values.end());
    return median(std::vector<double>(from, to));
  };
  for (int64_t distance = 1; distance < n; distance *= 2) {
    table.add({distance, around(sums[0], distance), around(sums[1], distance), around(sums[2], distance)});
    for (size_t i = 0; i < 3; ++i) {
      curves[i].x.push_back(static_cast<double>(distance));
      curves[i].y.push_back(around(sums[i], distance));
    }
  }
  const size_t last = table.rows.size() - 1;
  gru_fall = table.number(last, "GRU") / table.number(0, "GRU");
  keep_fall = table.number(last, "GRU that keeps") / table.number(0, "GRU that keeps");
  attention_fall = table.number(last, "attention") / table.number(0, "attention");
  return table;
}

}  // namespace

Result measure_path(const Options& options) {
  Curve curves[3] = {{"GRU", {}, {}}, {"GRU that keeps", {}, {}}, {"attention", {}, {}}};
  double gru_fall = 0, keep_fall = 0, attention_fall = 0;
  Table reached = reach_table(options, curves, gru_fall, keep_fall, attention_fall);

  const int64_t n = 64;
  Layers small(16, 1);
  Draws draws(1, 2);
  const at::Tensor x = normal(draws, {1, n, 16}, at::kFloat);
  Table paths{"path-length",
              "64 positions: layers until the last result depends on the first input, and steps of one layer "
              "that wait for one another",
              {text("layer"), count("layers"), count("sequential steps")},
              {}};
  const auto add_path = [&](const char* name, int64_t layers, auto&& one) {
    small.steps = 0;
    one(x);
    paths.add({std::string(name), layers, small.steps});
  };
  add_path("attention", layers_needed(x, [&](const at::Tensor& in, int64_t) { return small.attention(in); }),
           [&](const at::Tensor& in) { small.attention(in); });
  add_path("attention to 8 on each side",
           layers_needed(x, [&](const at::Tensor& in, int64_t) { return small.restricted(in); }),
           [&](const at::Tensor& in) { small.restricted(in); });
  add_path("convolution of 3",
           layers_needed(x, [&](const at::Tensor& in, int64_t) { return small.convolution(in); }),
           [&](const at::Tensor& in) { small.convolution(in); });
  add_path("convolution of 3, dilated by 1, 2, 4, ...",
           layers_needed(x,
                         [&](const at::Tensor& in, int64_t i) {
                           return small.convolution(
                               in, std::min(int64_t{1} << std::min<int64_t>(i, 32), in.size(1)));
                         }),
           [&](const at::Tensor& in) { small.convolution(in); });
  add_path("GRU", layers_needed(x, [&](const at::Tensor& in, int64_t) { return small.gru(in); }),
           [&](const at::Tensor& in) { small.gru(in); });

  const int64_t width = 128;
  const int64_t longest = options.size(4096, 1024);
  Table times{
      "path-time",
      "ms of one layer's forward pass, d = 128 (median of 7), and multiplications of the mixing alone",
      {count("n"), number("attention", 3), number("8 on each side", 3), number("convolution", 3),
       number("GRU", 3), number("attention: n^2 d", -1), number("8 on each side: r n d", -1),
       number("convolution: k n d^2", -1), number("GRU: n d^2", -1)},
      {}};
  std::vector<Verdict> faster;
  Curve time_curves[] = {
      {"attention", {}, {}}, {"8 on each side", {}, {}}, {"convolution", {}, {}}, {"GRU", {}, {}}};
  {
    const at::NoGradGuard no_gradients;
    Layers layers(width, 0);
    for (int64_t length = 64; length <= longest; length *= 4) {
      options.tell(say("time of %lld positions", static_cast<long long>(length)));
      const at::Tensor input = normal(draws, {1, length, width}, at::kFloat);
      const std::vector<double> measured[] = {
          milliseconds([&] { layers.attention(input); }), milliseconds([&] { layers.restricted(input); }),
          milliseconds([&] { layers.convolution(input); }), milliseconds([&] { layers.gru(input); })};
      const auto n_d = static_cast<double>(length);
      const auto d = static_cast<double>(width);
      times.add({length, median(measured[0]), median(measured[1]), median(measured[2]), median(measured[3]),
                 n_d * n_d * d, (2 * kNear + 1) * n_d * d, kKernel * n_d * d * d, n_d * d * d});
      faster.push_back(larger(measured[3], measured[0]));
      for (size_t i = 0; i < std::size(time_curves); ++i) {
        time_curves[i].x.push_back(n_d);
        time_curves[i].y.push_back(median(measured[i]));
      }
    }
  }
  const size_t last = times.rows.size() - 1;
  Result result;
  result.findings = {
      {"A gradient fades on its way through an RNN and reaches any distance by attention.",
       std::string(kFirstArticle) + ", 3",
       say("from distance 1 to the farthest a new GRU's falls to %.1e of itself, attention's to %.2f; a GRU "
           "whose update gate "
           "begins biased to keep: %.1e",
           gru_fall, attention_fall, keep_fall),
       decided(gru_fall < 1e-3 && attention_fall > 0.1)},
      {"The path between two positions is 1 by attention and n by an RNN.",
       std::string(kFirstArticle) + ", 3; " + kSeries + ", 1.1",
       say("one layer, %.0f step by attention; %.0f steps by a GRU; %.0f layers of 8 on each side; %.0f of "
           "convolutions, "
           "%.0f dilated",
           paths.number(0, "sequential steps"), paths.number(4, "sequential steps"),
           paths.number(1, "layers"), paths.number(2, "layers"), paths.number(3, "layers")),
       decided(paths.number(0, "layers") == 1 && paths.number(0, "sequential steps") == 1 &&
               paths.number(4, "sequential steps") == n)},
      {"Computed in parallel, attention is faster than a recurrence.", std::string(kFirstArticle) + ", 3",
       say("forward, ms: n = 64: attention %.2f, GRU %.2f; n = %.0f: %.2f and %.2f; faster beyond the spread "
           "at %lld of %lld "
           "lengths",
           times.number(0, "attention"), times.number(0, "GRU"), times.number(last, "n"),
           times.number(last, "attention"), times.number(last, "GRU"),
           static_cast<long long>(std::count(faster.begin(), faster.end(), Verdict::confirmed)),
           static_cast<long long>(faster.size())),
       all_of(faster)}};
  result.notes = {
      "A GRU that is trained may learn to keep; what is measured is what a gradient meets when training "
      "begins.",
      "Times are this machine's; attention's grows with n^2, so that somewhere beyond the table a GRU is "
      "faster."};
  result.plots = {
      {"gradient against distance", "distance", "|d out / d x|", true, true, {}, {curves, curves + 3}},
      {"time of a layer", "n", "ms", true, true, {}, {std::begin(time_curves), std::end(time_curves)}}};
  result.tables = {std::move(reached), std::move(paths), std::move(times)};
  return result;
}

}  // namespace regard::lab

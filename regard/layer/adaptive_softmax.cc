#include "regard/layer/adaptive_softmax.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

namespace regard::layer {
namespace {

// The start of torch's linear layers.
at::Tensor uniform(int64_t out, int64_t in) {
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  return at::empty({out, in}, at::kFloat).uniform_(-bound, bound);
}

int64_t tail_width(int64_t width, double division, int64_t cluster) {
  return static_cast<int64_t>(static_cast<double>(width) /
                              std::pow(division, static_cast<double>(cluster + 1)));
}

void check_target(const at::Tensor& x, const at::Tensor& target, int64_t classes) {
  if (target.dim() != 1 || target.size(0) != x.size(0) || target.scalar_type() != at::kLong) {
    throw std::invalid_argument("AdaptiveSoftmax: target must be int64 [N], one for each of the " +
                                std::to_string(x.size(0)) + " rows");
  }
  if (target.numel() > 0 && (target.min().item<int64_t>() < 0 || target.max().item<int64_t>() >= classes)) {
    throw std::invalid_argument("AdaptiveSoftmax: targets must be in [0, " + std::to_string(classes) + ")");
  }
}

}  // namespace

AdaptiveSoftmax::AdaptiveSoftmax(const AdaptiveSoftmaxOptions& options) : options_(options) {
  std::vector<int64_t>& cutoffs = options_.cutoffs;
  int64_t before = 0;
  for (const int64_t cutoff : cutoffs) {
    if (cutoff <= before || cutoff >= options.classes) {
      throw std::invalid_argument("AdaptiveSoftmax: a cutoff is " + std::to_string(cutoff) +
                                  "; cutoffs must rise and lie between 0 and " +
                                  std::to_string(options.classes));
    }
    before = cutoff;
  }
  if (cutoffs.empty()) throw std::invalid_argument("AdaptiveSoftmax: there must be at least one cutoff");
  if (!(options.division >= 1)) throw std::invalid_argument("AdaptiveSoftmax: division must be at least 1");
  cutoffs.push_back(options.classes);
  const auto count = static_cast<int64_t>(cutoffs.size()) - 1;
  head_ = register_parameter("head", uniform(cutoffs[0] + count, options.width));
  if (options.head_bias) {
    const double bound = 1 / std::sqrt(static_cast<double>(options.width));
    head_bias_ =
        register_parameter("head_bias", at::empty({cutoffs[0] + count}, at::kFloat).uniform_(-bound, bound));
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t numbers = tail_width(options.width, options.division, i);
    if (numbers < 1) {
      throw std::invalid_argument("AdaptiveSoftmax: cluster " + std::to_string(i) + " would work in " +
                                  std::to_string(options.width) + " / " + std::to_string(options.division) +
                                  "^" + std::to_string(i + 1) +
                                  " = 0 numbers; take fewer cutoffs or a smaller division");
    }
    const std::string name = "tail" + std::to_string(i);
    tails_.push_back({register_parameter(name + "_down", uniform(numbers, options.width)),
                      register_parameter(name + "_up", uniform(cutoffs[i + 1] - cutoffs[i], numbers))});
  }
}

at::Tensor AdaptiveSoftmax::head_log_prob(const at::Tensor& x) const {
  return at::log_softmax(
      at::linear(x, head_, head_bias_.defined() ? std::optional(head_bias_) : std::nullopt), -1);
}

at::Tensor AdaptiveSoftmax::cluster_log_prob(int64_t cluster, const at::Tensor& x) const {
  const Tail& tail = tails_[static_cast<size_t>(cluster)];
  return at::log_softmax(at::linear(at::linear(x, tail.down), tail.up), -1);
}

at::Tensor AdaptiveSoftmax::forward(const at::Tensor& x, const at::Tensor& target) const {
  check_target(x, target, options_.classes);
  const at::Tensor head = head_log_prob(x);
  at::Tensor column = target.clone();
  at::Tensor inside = at::zeros({x.size(0)}, x.options());
  for (int64_t i = 0; i < clusters(); ++i) {
    const int64_t begin = options_.cutoffs[static_cast<size_t>(i)];
    const int64_t end = options_.cutoffs[static_cast<size_t>(i) + 1];
    const at::Tensor rows = (target.ge(begin) & target.lt(end)).nonzero().squeeze(-1);
    if (rows.size(0) == 0) continue;
    column.index_fill_(0, rows, shortlist() + i);
    const at::Tensor place = (target.index_select(0, rows) - begin).unsqueeze(-1);
    const at::Tensor of_cluster = cluster_log_prob(i, x.index_select(0, rows)).gather(1, place).squeeze(-1);
    inside = inside.index_add(0, rows, of_cluster);
  }
  return head.gather(1, column.unsqueeze(-1)).squeeze(-1) + inside;
}

at::Tensor AdaptiveSoftmax::log_prob(const at::Tensor& x) const {
  const at::Tensor head = head_log_prob(x);
  std::vector<at::Tensor> parts = {head.narrow(1, 0, shortlist())};
  for (int64_t i = 0; i < clusters(); ++i) {
    parts.push_back(cluster_log_prob(i, x) + head.narrow(1, shortlist() + i, 1));
  }
  return at::cat(parts, 1);
}

at::Tensor AdaptiveSoftmax::predict(const at::Tensor& x) const {
  at::Tensor best = head_log_prob(x).argmax(1);
  const at::Tensor open = best.ge(shortlist()).nonzero().squeeze(-1);
  if (open.size(0) == 0) return best;
  return best.index_copy(0, open, log_prob(x.index_select(0, open)).argmax(1));
}

double ProductCost::operator()(double columns, double width, double batch) const {
  return flat + each * std::max(columns * width * batch, least);
}

std::vector<int64_t> choose_cutoffs(const std::vector<int64_t>& counts, int64_t width, int64_t batch,
                                    int64_t clusters, const ProductCost& cost, double division) {
  const auto classes = static_cast<int64_t>(counts.size());
  if (classes < 2 || width < 1 || batch < 1 || clusters < 1 ||
      !std::is_sorted(counts.rbegin(), counts.rend())) {
    throw std::invalid_argument(
        "choose_cutoffs: counts must be at least 2 and fall; width, batch and clusters at least 1");
  }
  std::vector<double> share(counts.size() + 1, 0.0);  // of the first classes
  for (size_t i = 0; i < counts.size(); ++i) share[i + 1] = share[i] + static_cast<double>(counts[i]);
  const double all = share.back();
  if (!(all > 0)) throw std::invalid_argument("choose_cutoffs: counts are all 0; allowed: some above 0");
  // Where a cutoff may lie: every class at first, then ever wider steps.
  std::vector<int64_t> grid;
  for (double at = 1; at < static_cast<double>(classes); at = std::max(at + 1, at * 1.06))
    grid.push_back(static_cast<int64_t>(at));
  grid.push_back(classes);
  const auto points = static_cast<int64_t>(grid.size());
  const auto b = static_cast<double>(batch);
  const auto of_cluster = [&](int64_t from, int64_t to, int64_t i) {
    const int64_t numbers = tail_width(width, division, i);
    if (numbers < 1) return std::numeric_limits<double>::infinity();
    const double rows =
        b * (share[static_cast<size_t>(grid[to])] - share[static_cast<size_t>(grid[from])]) / all;
    return cost(static_cast<double>(numbers), static_cast<double>(width), rows) +
           cost(static_cast<double>(grid[to] - grid[from]), static_cast<double>(numbers), rows);
  };
  double best = std::numeric_limits<double>::infinity();
  std::vector<int64_t> cutoffs;
  // cheapest[i][p]: classes from grid point p on in clusters i .. last.
  for (int64_t count = 1; count <= clusters; ++count) {
    std::vector<double> behind(static_cast<size_t>(points), std::numeric_limits<double>::infinity());
    behind.back() = 0;
    std::vector<std::vector<int64_t>> next;
    for (int64_t i = count - 1; i >= 0; --i) {
      std::vector<double> now(static_cast<size_t>(points), std::numeric_limits<double>::infinity());
      next.insert(next.begin(), std::vector<int64_t>(static_cast<size_t>(points), -1));
      for (int64_t from = 0; from + 1 < points; ++from) {
        for (int64_t to = from + 1; to < points; ++to) {
          if (behind[static_cast<size_t>(to)] == std::numeric_limits<double>::infinity()) continue;
          const double total = of_cluster(from, to, i) + behind[static_cast<size_t>(to)];
          if (total >= now[static_cast<size_t>(from)]) continue;
          now[static_cast<size_t>(from)] = total;
          next[0][static_cast<size_t>(from)] = to;
        }
      }
      behind = now;
    }
    for (int64_t p = 0; p + 1 < points; ++p) {
      const double total = cost(static_cast<double>(grid[p] + count), static_cast<double>(width), b) +
                           behind[static_cast<size_t>(p)];
      if (total >= best) continue;
      best = total;
      cutoffs = {grid[p]};
      for (int64_t i = 0, at = p; i + 1 < count; ++i) {
        at = next[static_cast<size_t>(i)][static_cast<size_t>(at)];
        cutoffs.push_back(grid[at]);
      }
    }
  }
  return cutoffs;
}

}  // namespace regard::layer

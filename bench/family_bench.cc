#include "bench/family_bench.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <numbers>
#include <random>
#include <stdexcept>

#include "bench/machine.h"
#include "regard/autograd/attention.h"
#include "regard/autograd/structured.h"
#include "regard/kernel/softmax.h"
#include "regard/layer/adaptive_softmax.h"
#include "regard/layer/hierarchical_softmax.h"
#include "regard/layer/structured.h"

namespace regard::bench {
namespace {

using Run = std::function<at::Tensor()>;

struct Sides {
  Run ours, peer;
  std::string peer_name, detail;
  bool compared = false;  // both give one thing
};

// [1, 2, length, 64] of slow waves, each feature of unit deviation.
at::Tensor waves(int64_t length) {
  const at::Tensor time = at::arange(length, at::kFloat).view({1, 1, length, 1}) *
                          (2 * std::numbers::pi / static_cast<double>(length));
  at::Tensor sum = at::zeros({1, 2, length, 64});
  for (int64_t harmonic = 1; harmonic <= 8; ++harmonic) {
    sum = sum + at::randn({1, 2, 1, 64}) *
                    at::sin(time * harmonic + at::rand({1, 2, 1, 64}) * (2 * std::numbers::pi));
  }
  return (sum / sum.std(2, true, true)).contiguous();
}

Sides approximation(const FamilyCase& c) {
  const at::Tensor q = waves(c.size), k = waves(c.size), v = waves(c.size);
  Sides sides;
  sides.compared = true;
  sides.peer_name = "full";
  sides.peer = [=] { return autograd::attention({}, q, k, v); };
  if (c.form == "block") {
    const int64_t block =
        std::max<int64_t>(64, static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(c.size)))));
    sides.detail = std::to_string(block) + " a block";
    sides.ours = [=] { return autograd::block_attention({block, false, {}}, q, k, v); };
  } else if (c.form == "nystrom") {
    sides.detail = "64 landmarks, 6 iterations";
    sides.ours = [=] { return layer::nystrom_attention({.landmarks = 64}, q, k, v); };
  } else if (c.form == "lsh") {
    sides.detail = "shared q, 4 rounds of 64";
    const int64_t buckets = std::max<int64_t>(2, c.size / 64);
    // Logits up to |q|: divided by sqrt(Dk) as well, attention to unit keys would be even.
    sides.ours = [=] { return autograd::lsh_attention({buckets, 4, 64, false, 1, 1.0}, q, v); };
    const at::Tensor unit = q / q.norm(2, {-1}, true);
    attention::Spec spec;
    spec.scale = 1.0;
    sides.peer = [=] { return autograd::attention(spec, q, unit, v); };
  } else {
    const auto linformer = std::make_shared<layer::Linformer>(c.size, 256, true);
    sides.detail = "rank 256";
    sides.compared = false;  // its projections would have to be learned
    sides.ours = [=] { return linformer->forward(q, k, v).detach(); };
  }
  return sides;
}

Sides score(const FamilyCase& c) {
  const auto draw = [&](int64_t heads) { return at::randn({1, heads, c.size, 64}); };
  const at::Tensor q = draw(8), k = draw(8), v = draw(8), vector = at::randn({8, 64}) / 8;
  Sides sides;
  sides.peer_name = "scaled dot";
  sides.detail = "8 heads of 64";
  if (!c.backward) {
    sides.ours = [=] { return autograd::additive_attention({}, q, k, v, vector); };
    sides.peer = [=] { return autograd::attention({}, q, k, v); };
    return sides;
  }
  const auto graded = [](const std::function<at::Tensor(const std::vector<at::Tensor>&)>& run,
                         const std::vector<at::Tensor>& inputs) {
    std::vector<at::Tensor> leaves;
    for (const at::Tensor& input : inputs) leaves.push_back(input.detach().requires_grad_());
    const at::Tensor out = run(leaves);
    return [=] {
      out.backward(at::ones_like(out), true);
      return out;
    };
  };
  sides.ours = graded([](const auto& t) { return autograd::additive_attention({}, t[0], t[1], t[2], t[3]); },
                      {q, k, v, vector});
  sides.peer = graded([](const auto& t) { return autograd::attention({}, t[0], t[1], t[2]); }, {q, k, v});
  return sides;
}

Sides head(const FamilyCase& c) {
  constexpr int64_t kTokens = 256;
  constexpr int64_t kWidth = 256;
  std::vector<int64_t> counts;
  std::vector<double> shares;
  for (int64_t i = 0; i < c.size; ++i) {
    counts.push_back(1 + 10000000 / (i + 1));
    shares.push_back(static_cast<double>(counts.back()));
  }
  std::mt19937_64 random(1);
  std::discrete_distribution<int64_t> draw(shares.begin(), shares.end());
  std::vector<int64_t> targets(kTokens);
  for (int64_t& target : targets) target = draw(random);
  const at::Tensor target = at::tensor(targets, at::kLong);
  const at::Tensor x = at::randn({kTokens, kWidth}).requires_grad_();
  const at::Tensor weight = (at::randn({c.size, kWidth}) / 16).requires_grad_();
  Sides sides;
  sides.peer_name = "full";
  sides.peer = [=] {
    weight.mutable_grad() = at::Tensor();
    const at::Tensor loss = at::cross_entropy_loss(at::linear(x, weight), target);
    loss.backward();
    return loss;
  };
  const auto graded = [=](auto module) {
    return [=] {
      module->zero_grad();
      const at::Tensor loss = -module->forward(x, target).mean();
      loss.backward();
      return loss;
    };
  };
  const auto wanted = [](auto module) {
    for (at::Tensor& parameter : module->parameters()) parameter.requires_grad_();
    return module;
  };
  if (c.form == "adaptive") {
    const std::vector<int64_t> cutoffs = layer::choose_cutoffs(counts, kWidth, kTokens, 4, {2e6, 1, 0});
    for (const int64_t cutoff : cutoffs)
      sides.detail += (sides.detail.empty() ? "cutoffs " : ", ") + std::to_string(cutoff);
    sides.ours = graded(wanted(std::make_shared<layer::AdaptiveSoftmax>(
        layer::AdaptiveSoftmaxOptions{kWidth, c.size, cutoffs, 4.0, false})));
  } else {
    layer::BinaryTree tree = layer::huffman_tree(counts);
    char steps[32];
    std::snprintf(steps, sizeof steps, "%.1f steps a token", tree.mean_length(counts));
    sides.detail = steps;
    sides.ours = graded(wanted(std::make_shared<layer::HierarchicalSoftmax>(kWidth, std::move(tree), true)));
  }
  return sides;
}

Sides rows_of_softmax(const FamilyCase& c) {
  using kernel::SoftmaxWay;
  const int64_t rows = (int64_t{1} << 24) / c.size;  // 64 MB: beyond the caches, so that passes count
  const at::Tensor x = at::randn({rows, c.size});
  const at::Tensor out = at::empty_like(x);
  const SoftmaxWay way = c.form == "naive"  ? SoftmaxWay::naive
                         : c.form == "safe" ? SoftmaxWay::safe
                                            : SoftmaxWay::online;
  const auto ours = [=] {
    kernel::Serial serial;
    return kernel::softmax(way, false, {rows, c.size, c.size}, x.const_data_ptr<float>(),
                           out.mutable_data_ptr<float>(), serial);
  };
  const kernel::SoftmaxTraffic traffic = ours();
  const auto all = static_cast<int64_t>(x.nbytes());
  Sides sides;
  sides.compared = true;
  sides.detail = std::to_string(traffic.bytes_read / all) + " reads, " +
                 std::to_string(traffic.bytes_written / all) + " write of each number";
  sides.peer_name = "torch";
  sides.ours = [=] {
    ours();
    return out;
  };
  const at::Tensor of_peer = at::empty_like(x);
  sides.peer = [=] {
    at::Tensor result = of_peer;
    return at::_softmax_out(result, x, -1, false);
  };
  return sides;
}

}  // namespace

std::vector<FamilyCase> family_cases(bool quick) {
  std::vector<FamilyCase> cases;
  const std::vector<int64_t> lengths =
      quick ? std::vector<int64_t>{1024, 4096} : std::vector<int64_t>{1024, 2048, 4096, 8192, 16384};
  for (const char* form : {"block", "nystrom", "linformer", "lsh"})
    for (const int64_t length : lengths) cases.push_back({"approximation", form, length});
  for (const int64_t length : quick ? std::vector<int64_t>{512} : std::vector<int64_t>{256, 1024})
    for (const bool backward : {false, true}) cases.push_back({"score", "additive", length, backward});
  for (const char* form : {"naive", "safe", "online"})
    for (const int64_t columns :
         quick ? std::vector<int64_t>{4096} : std::vector<int64_t>{1024, int64_t{1} << 20})
      cases.push_back({"softmax", form, columns});
  for (const char* form : {"adaptive", "hierarchical"})
    for (const int64_t classes :
         quick ? std::vector<int64_t>{1000, 20000} : std::vector<int64_t>{1000, 10000, 30000, 100000})
      cases.push_back({"head", form, classes, true});
  return cases;
}

nlohmann::ordered_json run_family_case(const FamilyCase& c, double seconds) {
  at::manual_seed(1);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  Sides sides;
  if (c.op == "approximation") {
    sides = approximation(c);
  } else if (c.op == "score") {
    sides = score(c);
  } else if (c.op == "softmax") {
    sides = rows_of_softmax(c);
  } else if (c.op == "head") {
    sides = head(c);
  } else {
    throw std::invalid_argument("family: op is \"" + c.op +
                                "\"; allowed: approximation, score, softmax, head");
  }
  double ours = std::numeric_limits<double>::infinity();
  double peer = ours;
  at::Tensor of_ours, of_peer;
  const auto time = [](const Run& run, at::Tensor& result) {
    const double begin = thread_seconds();
    result = run();
    return thread_seconds() - begin;
  };
  const double begin = wall_seconds();
  for (int round = 0; round < 3 || wall_seconds() - begin < seconds; ++round) {
    ours = std::min(ours, time(sides.ours, of_ours));
    peer = std::min(peer, time(sides.peer, of_peer));
    if (round > 0 && wall_seconds() - begin > 4 * seconds) break;
  }
  at::set_num_threads(threads);
  nlohmann::ordered_json row;
  row["op"] = c.op;
  row["form"] = c.form;
  row["pass"] = c.op == "head" ? "forward_backward" : c.backward ? "backward" : "forward";
  row["size"] = c.size;
  row["detail"] = sides.detail;
  row["ours_ms"] = ours * 1e3;
  row["peer"] = sides.peer_name;
  row["peer_ms"] = peer * 1e3;
  row["ratio"] = peer / ours;
  if (sides.compared) {
    const at::NoGradGuard no_grad;
    row["error"] = (of_ours - of_peer).norm().item<double>() / of_peer.norm().item<double>();
  }
  return row;
}

}  // namespace regard::bench

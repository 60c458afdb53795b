#include "bench/linear_bench.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>

#include "bench/machine.h"
#include "regard/attention/attention.h"
#include "regard/attention/linear.h"
#include "regard/attention/scratch.h"
#include "regard/autograd/views.h"
#include "regard/kernel/targets.h"

namespace regard::bench {
namespace {

using attention::Align;
using attention::Mask;
using kernel::View;

// Our linear attention with all that it needs already allocated.
class LinearSide {
 public:
  LinearSide(const LinearBenchCase& c, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
             const at::Tensor& grad_out, kernel::Parallel& parallel)
      : backward_(c.op == "backward"), parallel_(parallel), q_(q), k_(k), v_(v), grad_out_(grad_out) {
    const auto floats = q.options();
    const kernel::Extents state_size{1, c.heads, c.features, c.features};
    if (c.form == "elu") {
      spec_.feature = attention::FeatureMap::elu1;
      spec_.denominator = attention::Denominator::add;
      spec_.causal = c.mask == "causal";
      norm_ = at::ones({1, c.heads, c.features, 1}, floats);
      denominators_ = at::empty({1, c.heads, c.length, 1}, floats);
      call_.denominators = autograd::gradient_view(denominators_, {1, c.heads, c.length, 1}, "denominators");
    } else if (c.form == "lightning") {
      decay_ = -at::exp2(-at::arange(1, c.heads + 1, floats) * 8 / c.heads).view({1, c.heads, 1, 1});
    } else if (c.form == "gated") {
      decay_ = at::log_sigmoid(at::randn({1, c.heads, c.length, 1}, floats)) / 16;
    } else if (c.form == "gated_feature") {
      decay_ = at::log_sigmoid(at::randn({1, c.heads, c.length, c.features}, floats)) / 16;
    } else if (c.form == "delta") {
      beta_ = at::sigmoid(at::randn({1, c.heads, c.length, 1}, floats));
      k_ = k_ / k_.norm(2, -1, true);
    }
    out_ = at::empty(v.sizes(), floats);
    call_.q = autograd::const_view(q_, "q");
    call_.k = autograd::const_view(k_, "k");
    call_.v = autograd::const_view(v_, "v");
    call_.out = autograd::mutable_view(out_, "out");
    const kernel::Extents keys{1, c.heads, c.length, c.features};
    if (decay_.defined()) call_.log_decay = autograd::broadcast_view(decay_, keys, "log_decay");
    if (beta_.defined()) call_.beta = autograd::broadcast_view(beta_, {1, c.heads, c.length, 1}, "beta");
    if (c.op == "decode") {
      state_ = at::randn({1, c.heads, c.features, c.features}, floats);
      call_.state = call_.state_out = autograd::gradient_view(state_, state_size, "state");
      if (norm_.defined())
        call_.norm = call_.norm_out = autograd::gradient_view(norm_, {1, c.heads, c.features, 1}, "norm");
    }
    plan_.emplace(spec_, call_);
    bytes_ = plan_->workspace_bytes(parallel.workers());
    scratch_.emplace(bytes_);
    if (!backward_) return;
    bytes_ = attention::linear_backward_bytes(spec_, call_, parallel.workers());
    forward();
    for (const at::Tensor& x : {q_, k_, v_}) gradients_.push_back(at::empty_like(x));
    wanted_.q = autograd::mutable_view(gradients_[0], "q");
    wanted_.k = autograd::mutable_view(gradients_[1], "k");
    wanted_.v = autograd::mutable_view(gradients_[2], "v");
    arriving_.out = autograd::const_view(grad_out_, "grad_out");
  }

  void forward() { plan_->run(call_, scratch_->bytes(), parallel_); }
  void run() {
    if (!backward_) return forward();
    // With its allocation, as a training step pays it.
    attention::linear_backward(spec_, call_, arriving_, wanted_, parallel_);
  }
  size_t extra_bytes() const { return bytes_; }

 private:
  bool backward_;
  kernel::Parallel& parallel_;
  at::Tensor q_, k_, v_, grad_out_, decay_, beta_, state_, norm_, out_, denominators_;
  std::vector<at::Tensor> gradients_;
  attention::LinearSpec spec_;
  attention::LinearOperands call_;
  attention::LinearGradients wanted_;
  attention::LinearArriving arriving_;
  std::optional<attention::LinearPlan> plan_;
  std::optional<attention::Scratch> scratch_;
  size_t bytes_ = 0;
};

// Our softmax attention under the same mask.
class SoftmaxSide {
 public:
  SoftmaxSide(const LinearBenchCase& c, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
              kernel::Parallel& parallel)
      : parallel_(parallel), out_(at::empty_like(v)) {
    if (c.mask == "causal") spec_.mask = Mask::causal(Align::top_left);
    call_.q = autograd::const_view(q, "q");
    call_.k = autograd::const_view(k, "k");
    call_.v = autograd::const_view(v, "v");
    call_.out = autograd::mutable_view(out_, "out");
    plan_.emplace(spec_, call_);
    scratch_.emplace(plan_->workspace_bytes(parallel.workers()));
  }
  void run() { plan_->run(call_, scratch_->bytes(), parallel_); }

 private:
  kernel::Parallel& parallel_;
  at::Tensor out_;
  attention::Spec spec_;
  attention::Operands call_;
  std::optional<attention::Plan> plan_;
  std::optional<attention::Scratch> scratch_;
};

struct Times {
  double ours, peer;
};

// Alternately, the best of each.
Times best_times(const std::function<void()>& ours, const std::function<void()>& peer, double seconds,
                 bool alone) {
  const auto now = [&] { return alone ? thread_seconds() : wall_seconds(); };
  Times best{1e30, 1e30};
  ours();
  if (peer) peer();
  const double start = wall_seconds();
  for (int i = 0; i == 0 || wall_seconds() - start < (i < 3 ? 4 * seconds : seconds); ++i) {
    const double a = now();
    ours();
    const double b = now();
    best.ours = std::min(best.ours, b - a);
    if (!peer) continue;
    peer();
    best.peer = std::min(best.peer, now() - b);
  }
  return best;
}

std::unique_ptr<kernel::Parallel> parallel_of(int threads) {
  if (threads == 1) return std::make_unique<kernel::Serial>();
  return std::make_unique<kernel::ThreadPool>(threads);
}

}  // namespace

std::vector<LinearBenchCase> linear_cases(bool quick) {
  std::vector<LinearBenchCase> cases;
  const auto add = [&](const char* op, const char* form, const char* mask, const char* peer, int64_t length,
                       int threads) {
    LinearBenchCase c;
    c.op = op;
    c.form = form;
    c.mask = mask;
    c.peer = peer;
    c.length = length;
    c.threads = threads;
    cases.push_back(c);
  };
  const std::vector<int64_t> lengths =
      quick ? std::vector<int64_t>{256, 4096} : std::vector<int64_t>{128, 256, 512, 1024, 2048, 4096};
  for (const int threads : {1, 2}) {
    if (quick && threads == 2) continue;
    for (const int64_t length : lengths) add("forward", "linear", "causal", "softmax", length, threads);
    for (const char* form : {"elu", "lightning", "gated", "gated_feature", "delta"})
      add("forward", form, "causal", "softmax", quick ? 1024 : 4096, threads);
    add("forward", "elu", "none", "softmax", quick ? 1024 : 4096, threads);
    add("forward", "linear", "causal", "torch", 4096, threads);
    for (const char* form : {"linear", "elu", "lightning", "gated", "gated_feature", "delta"})
      add("backward", form, "causal", "forward", 4096, threads);
    add("backward", "elu", "none", "forward", 4096, threads);
  }
  for (const char* form : {"linear", "lightning"})
    for (const int64_t length : {4096, 16384, 65536, 131072}) {
      if (quick && length != 4096 && length != 131072) continue;
      add("forward", form, "causal", "none", length, 1);
    }
  for (const char* form : {"elu", "delta"}) add("decode", form, "causal", "none", 1, 1);
  return cases;
}

nlohmann::ordered_json run_linear_case(const LinearBenchCase& c, double seconds) {
  const at::NoGradGuard no_grad;
  const int threads_before = at::get_num_threads();
  at::set_num_threads(c.threads);
  at::manual_seed(1);
  const auto make = [&] { return at::randn({1, c.heads, c.length, c.features}, at::kFloat); };
  const at::Tensor q = make(), k = make(), v = make(), grad_out = make();
  const std::unique_ptr<kernel::Parallel> parallel = parallel_of(c.threads);
  const Machine machine = measure_machine(*parallel);
  LinearSide ours(c, q, k, v, grad_out, *parallel);
  std::optional<SoftmaxSide> softmax;
  at::Tensor torch_out;
  std::function<void()> peer;
  if (c.peer == "softmax") {
    softmax.emplace(c, q, k, v, *parallel);
    peer = [&] { softmax->run(); };
  } else if (c.peer == "torch") {
    peer = [&] { torch_out = at::scaled_dot_product_attention(q, k, v, {}, 0.0, c.mask == "causal"); };
  } else if (c.peer == "forward") {
    peer = [&] { ours.forward(); };
  }
  const bool alone = c.threads == 1;
  // A single token is too short for the clock.
  const int repeats = c.op == "decode" ? 200 : 1;
  const Times best = best_times(
      [&] {
        for (int i = 0; i < repeats; ++i) ours.run();
      },
      peer, seconds, alone);
  at::set_num_threads(threads_before);
  const double ours_seconds = best.ours / repeats;
  const double products = (c.form == "delta" ? 6.0 : 4.0) * (c.op == "backward" ? 2.5 : 1.0);
  const auto tokens = static_cast<double>(c.length);
  const double operations = products * static_cast<double>(c.heads * c.features * c.features) * tokens;
  nlohmann::ordered_json row;
  row["op"] = c.op;
  row["form"] = c.form;
  row["mask"] = c.mask;
  row["dtype"] = "f32";
  row["B"] = 1;
  row["Hq"] = row["Hkv"] = c.heads;
  row["Lq"] = row["Lk"] = c.length;
  row["Dk"] = row["Dv"] = c.features;
  row["threads"] = c.threads;
  row["clock"] = alone ? "thread" : "wall";
  row["ours_ms"] = ours_seconds * 1e3;
  row["us_per_token"] = ours_seconds * 1e6 / tokens;
  row["peer"] = c.peer;
  row["peer_ms"] = peer ? best.peer * 1e3 : 0.0;
  row["ratio"] = peer ? best.peer / ours_seconds : 0.0;
  if (c.op == "backward") row["times_forward"] = ours_seconds / best.peer;
  row["gflops"] = operations / ours_seconds * 1e-9;
  row["peak_share"] = operations / ours_seconds * 1e-9 / machine.peak_gflops;
  row["extra_bytes"] = ours.extra_bytes();
  row["isa"] = kernel::active_target();
  row["peak_gflops"] = machine.peak_gflops;
  row["read_gbytes"] = machine.read_gbytes;
  return row;
}

nlohmann::ordered_json linear_crossover(int64_t features, double seconds) {
  int64_t crossing = 0;
  nlohmann::ordered_json ratios = nlohmann::ordered_json::object();
  for (int64_t length = 32; length <= 512; length += 32) {
    LinearBenchCase c;
    c.length = length;
    c.features = features;
    const double ratio = run_linear_case(c, seconds)["ratio"];
    ratios[std::to_string(length)] = ratio;
    // From here on: one lucky length is no crossing.
    if (ratio < 1)
      crossing = 0;
    else if (crossing == 0)
      crossing = length;
  }
  nlohmann::ordered_json row;
  row["op"] = "crossover";
  row["form"] = "linear";
  row["mask"] = "causal";
  row["dtype"] = "f32";
  row["Dk"] = row["Dv"] = features;
  row["threads"] = 1;
  row["length"] = crossing;
  row["ratios"] = ratios;
  return row;
}

}  // namespace regard::bench

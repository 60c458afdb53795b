#include "bench/attention_bench.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <span>

#include "bench/machine.h"
#include "regard/attention/bound_mask.h"
#include "regard/attention/plan.h"
#include "regard/autograd/attention.h"
#include "regard/kernel/targets.h"

namespace regard::bench {
namespace {

using attention::Align;
using attention::Mask;
using kernel::DType;

at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return at::kBFloat16;
    case DType::f16:
      return at::kHalf;
    case DType::f32:
      break;
  }
  return at::kFloat;
}

Mask mask_of(const AttentionCase& c) {
  if (c.mask == "none") return {};
  if (c.mask == "causal") return Mask::causal(Align::bottom_right);
  return Mask::window(c.window - 1, 0, Align::bottom_right);
}

// Pairs of query and key that are visible, in one head.
double visible_pairs(const AttentionCase& c) {
  if (c.mask == "none") return static_cast<double>(c.queries) * static_cast<double>(c.keys);
  double pairs = 0;
  for (int64_t i = 0; i < c.queries; ++i) {
    const int64_t seen = i + c.keys - c.queries + 1;
    pairs += static_cast<double>(c.mask == "window" ? std::min(seen, c.window) : seen);
  }
  return pairs;
}

// libtorch's own call for the same problem.
class Peer {
 public:
  Peer(const AttentionCase& c, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v)
      : q_(q), k_(k), v_(v), causal_(c.mask == "causal"), grouped_(c.heads != c.kv_heads) {
    if (c.mask != "window") return;
    const at::Tensor distance = (at::arange(c.queries, at::kLong) + (c.keys - c.queries)).unsqueeze(1) -
                                at::arange(c.keys, at::kLong).unsqueeze(0);
    mask_ = (distance >= 0).logical_and(distance < c.window);
  }
  void run() {
    out_ = at::scaled_dot_product_attention(q_, k_, v_, mask_, 0.0, causal_, std::nullopt, grouped_);
  }
  const at::Tensor& out() const { return out_; }

 private:
  at::Tensor q_, k_, v_, out_;
  std::optional<at::Tensor> mask_;
  bool causal_;
  bool grouped_;
};

// Our plan with its scratch.
class Ours {
 public:
  Ours(const AttentionCase& c, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    spec_.mask = mask_of(c);
    operands_ = autograd::operands(q, k, v);
    out_ = at::empty({c.batch, c.heads, c.queries, c.value_features}, q.options());
    lse_ = at::empty({c.batch, c.heads, c.queries, 1}, at::kFloat);
    operands_.out = kernel::AnyView(
        out_.mutable_data_ptr(), operands_.q.dtype, {c.batch, c.heads, c.queries, c.value_features},
        kernel::contiguous_strides({c.batch, c.heads, c.queries, c.value_features}));
    operands_.lse = kernel::View<float>(lse_.mutable_data_ptr<float>(), {c.batch, c.heads, c.queries, 1});
    if (c.threads == 1)
      parallel_ = std::make_unique<kernel::Serial>();
    else
      parallel_ = std::make_unique<kernel::ThreadPool>(c.threads);
    plan_.emplace(spec_, operands_);
    bytes_ = plan_->workspace_bytes(c.threads);
    workspace_.reset(static_cast<std::byte*>(::operator new (bytes_ + 64, std::align_val_t{64})));
  }
  void run() { plan_->run(operands_, {workspace_.get(), bytes_}, *parallel_); }

  const at::Tensor& out() const { return out_; }
  const attention::Plan& plan() const { return *plan_; }
  size_t bytes() const { return bytes_; }
  kernel::Parallel& parallel() { return *parallel_; }

 private:
  struct Release {
    void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{64}); }
  };
  attention::Spec spec_;
  attention::Operands operands_;
  at::Tensor out_, lse_;
  std::unique_ptr<kernel::Parallel> parallel_;
  std::optional<attention::Plan> plan_;
  size_t bytes_ = 0;
  std::unique_ptr<std::byte, Release> workspace_;
};

AttentionCase square(const std::string& mask, int64_t length, int64_t features, int threads) {
  AttentionCase c;
  c.mask = mask;
  c.queries = c.keys = length;
  c.key_features = c.value_features = features;
  c.threads = threads;
  if (mask == "window") c.window = 128;
  return c;
}

AttentionCase decode(DType dtype, DType peer_dtype, int threads) {
  AttentionCase c;
  c.op = "decode";
  c.dtype = dtype;
  c.peer_dtype = peer_dtype;
  c.heads = 32;
  c.kv_heads = 8;
  c.queries = 1;
  c.keys = 8192;
  c.key_features = c.value_features = 128;
  c.threads = threads;
  return c;
}

}  // namespace

std::vector<AttentionCase> attention_cases(bool quick) {
  std::vector<AttentionCase> cases;
  for (const int threads : {1, 2})
    for (const int64_t features : {64, 128})
      for (const int64_t length : {128, 512, 1024, 2048, 4096})
        for (const char* mask : {"none", "causal"}) {
          if (quick && (features == 128 || length == 4096 || (threads == 2 && length != 1024))) continue;
          cases.push_back(square(mask, length, features, threads));
        }
  for (const int threads : {1, 2}) {
    cases.push_back(square("window", 4096, 64, threads));
    if (!quick) cases.push_back(square("window", 4096, 128, threads));
    cases.push_back(decode(DType::f32, DType::f32, threads));
    cases.push_back(decode(DType::bf16, DType::f32, threads));
  }
  return cases;
}

nlohmann::ordered_json run_attention_case(const AttentionCase& c, double seconds) {
  const c10::InferenceMode inference;
  const int threads_before = at::get_num_threads();
  at::set_num_threads(c.threads);
  at::manual_seed(1);
  const auto make = [&](int64_t heads, int64_t length, int64_t features) {
    return at::randn({c.batch, heads, length, features}, at::kFloat);
  };
  const at::Tensor q = make(c.heads, c.queries, c.key_features);
  const at::Tensor k = make(c.kv_heads, c.keys, c.key_features);
  const at::Tensor v = make(c.kv_heads, c.keys, c.value_features);
  const auto ours_type = scalar_type(c.dtype);
  const auto peer_type = scalar_type(c.peer_dtype);
  const at::Tensor own_q = q.to(ours_type), own_k = k.to(ours_type), own_v = v.to(ours_type);
  Ours ours(c, own_q, own_k, own_v);
  Peer peer(c, q.to(peer_type), k.to(peer_type), v.to(peer_type));

  const Machine machine = measure_machine(ours.parallel());
  ours.run();
  peer.run();
  const double difference =
      (ours.out().to(at::kFloat) - peer.out().to(at::kFloat)).abs().max().item<double>();
  const bool alone = c.threads == 1;
  const auto now = [&] { return alone ? thread_seconds() : wall_seconds(); };
  double best_ours = 1e30;
  double best_peer = 1e30;
  const double start = wall_seconds();
  for (int i = 0; i < 3 || wall_seconds() - start < seconds; ++i) {
    const double a = now();
    ours.run();
    const double b = now();
    peer.run();
    const double d = now();
    best_ours = std::min(best_ours, b - a);
    best_peer = std::min(best_peer, d - b);
  }
  at::set_num_threads(threads_before);

  const double operations = 2.0 * static_cast<double>(c.batch * c.heads) * visible_pairs(c) *
                            static_cast<double>(c.key_features + c.value_features);
  const double kv_bytes = static_cast<double>(c.batch * c.kv_heads * c.keys *
                                              (c.key_features + c.value_features) * kernel::bytes(c.dtype));
  const attention::BoundMask mask(mask_of(c), c.queries, c.keys);
  const attention::TileCount tiles = count_tiles(mask, 0, 0, ours.plan().tiling().query_rows, 64);
  const double gflops = operations / best_ours * 1e-9;
  nlohmann::ordered_json row;
  row["op"] = c.op;
  row["form"] = "softmax";
  row["mask"] = c.mask;
  row["dtype"] = kernel::name(c.dtype);
  row["B"] = c.batch;
  row["Hq"] = c.heads;
  row["Hkv"] = c.kv_heads;
  row["Lq"] = c.queries;
  row["Lk"] = c.keys;
  row["Dk"] = c.key_features;
  row["Dv"] = c.value_features;
  row["threads"] = c.threads;
  row["clock"] = alone ? "thread" : "wall";
  row["ours_ms"] = best_ours * 1e3;
  row["peer"] = "torch";
  row["peer_dtype"] = kernel::name(c.peer_dtype);
  row["peer_ms"] = best_peer * 1e3;
  row["ratio"] = best_peer / best_ours;
  row["gflops"] = gflops;
  row["peak_share"] = gflops / machine.peak_gflops;
  row["extra_bytes"] = ours.bytes();
  row["live_tiles"] = tiles.all == 0 ? 0.0 : static_cast<double>(tiles.live) / static_cast<double>(tiles.all);
  if (c.window > 0) row["window"] = c.window;
  row["difference"] = difference;
  row["isa"] = kernel::active_target();
  row["peak_gflops"] = machine.peak_gflops;
  row["read_gbytes"] = machine.read_gbytes;
  row["kv_gbytes"] = kv_bytes / best_ours * 1e-9;
  return row;
}

}  // namespace regard::bench

#include "bench/attention_sides.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "regard/attention/backward.h"
#include "regard/attention/custom.h"
#include "regard/attention/decode.h"
#include "regard/attention/mla.h"
#include "regard/attention/observe.h"
#include "regard/attention/plan.h"
#include "regard/attention/scratch.h"
#include "regard/attention/varlen.h"
#include "regard/autograd/attention.h"
#include "regard/autograd/decode.h"
#include "regard/autograd/views.h"

namespace regard::bench {

namespace {

// libtorch's own call for the same problem, the backward by its autograd.
class Torch final : public Side {
 public:
  Torch(const AttentionCase& c, const AttentionInputs& inputs)
      : op_(c.op),
        in_(inputs),
        dropout_(c.dropout),
        causal_(c.mask == "causal"),
        grouped_(c.heads != c.kv_heads) {
    if (op_ == "backward" || op_ == "forward_backward") {
      for (at::Tensor* input : {&in_.q, &in_.k, &in_.v}) *input = input->detach().requires_grad_();
    }
    if (const at::Tensor visible = CaseMask(c).visible(); visible.defined()) mask_ = visible;
    if (c.ragged) {
      const at::Tensor lengths = (at::arange(1, c.batch + 1) * c.keys).div(c.batch, "floor");
      mask_ = at::arange(c.keys).lt(lengths.view({c.batch, 1, 1, 1}));
    }
    if (op_ == "backward") forward();
  }

  void run() override {
    if (op_ != "backward") forward();
    if (op_ == "backward" || op_ == "forward_backward") backward();
  }
  const at::Tensor& result() const override { return gradients_.empty() ? out_ : gradients_[0]; }

 private:
  void forward() {
    out_ = at::scaled_dot_product_attention(in_.q, in_.k, in_.v, mask_, dropout_, causal_, std::nullopt,
                                            grouped_);
  }
  void backward() {
    gradients_ = torch::autograd::grad({out_}, {in_.q, in_.k, in_.v}, {in_.grad_out}, /*retain_graph=*/true);
  }

  std::string op_;
  AttentionInputs in_;
  at::Tensor out_;
  std::vector<at::Tensor> gradients_;
  std::optional<at::Tensor> mask_;
  double dropout_;
  bool causal_;
  bool grouped_;
};

// Product, softmax, product, with all weights in memory.
class Unfused final : public Side {
 public:
  Unfused(const AttentionCase& c, const AttentionInputs& inputs)
      : in_(inputs), observed_(c.op == "observe"), top_k_(c.top_k) {
    if (c.mask == "causal") {
      hidden_ = at::ones({c.queries, c.keys}, at::kBool).triu(c.keys - c.queries + 1);
    }
  }

  void run() override {
    at::Tensor scores =
        at::matmul(in_.q * (1 / std::sqrt(static_cast<double>(in_.q.size(3)))), in_.k.transpose(2, 3));
    if (hidden_.defined()) scores.masked_fill_(hidden_, -INFINITY);
    const at::Tensor weights = at::softmax(scores, -1);
    out_ = at::matmul(weights, in_.v);
    if (!observed_) return;
    entropy_ = at::special_entr(weights).sum(-1);
    columns_ = weights.sum(2);
    if (top_k_ > 0) top_ = std::get<0>(at::topk(weights, top_k_, -1));
  }
  const at::Tensor& result() const override { return out_; }

 private:
  AttentionInputs in_;
  bool observed_;
  int64_t top_k_;
  at::Tensor hidden_, out_, entropy_, columns_, top_;
};

// Our plan with its scratch.
class Planned final : public OurSide {
 public:
  Planned(const AttentionCase& c, const AttentionInputs& inputs);
  void run() override;
  const at::Tensor& result() const override { return gradients_.empty() ? out_ : gradients_[0]; }
  std::optional<size_t> extra_bytes() const override { return bytes_; }
  double live_tiles(const CaseMask& mask) const override {
    if (spec_.mask.depends_on_data()) return mask.live_tiles(plan_->tiling().query_rows);
    const attention::TileCount tiles = plan_->live_tiles();
    return tiles.all == 0 ? 0.0 : static_cast<double>(tiles.live) / static_cast<double>(tiles.all);
  }

 private:
  std::string op_;
  CaseMask mask_;
  attention::Observe observe_;
  attention::Spec spec_;
  AttentionInputs in_;
  attention::Operands operands_;
  attention::Arriving arriving_;
  attention::Gradients wanted_;
  at::Tensor out_, lse_;
  std::vector<at::Tensor> gradients_;
  std::optional<attention::Plan> plan_;
  std::optional<attention::BackwardPlan> backward_;
  size_t bytes_ = 0;
  std::optional<attention::Scratch> scratch_;
};

Planned::Planned(const AttentionCase& c, const AttentionInputs& inputs)
    : OurSide(c.threads), op_(c.op), mask_(c), in_(inputs) {
  spec_.mask = mask_.mask();
  spec_.dropout = c.dropout;
  operands_ = autograd::operands(in_.q, in_.k, in_.v);
  mask_.add_to(operands_);
  operands_.dropout_seed = 1;
  out_ = at::empty({c.batch, c.heads, c.queries, c.value_features}, in_.q.options());
  lse_ = at::empty({c.batch, c.heads, c.queries}, at::kFloat);
  operands_.out = autograd::mutable_view(out_, "out");
  operands_.lse = autograd::lse_view(lse_);
  plan_.emplace(spec_, operands_);
  bytes_ = plan_->workspace_bytes(c.threads);
  if (op_ == "backward" || op_ == "forward_backward") {
    for (const at::Tensor& input : {in_.q, in_.k, in_.v}) gradients_.push_back(at::empty_like(input));
    wanted_.q = autograd::mutable_view(gradients_[0], "q");
    wanted_.k = autograd::mutable_view(gradients_[1], "k");
    wanted_.v = autograd::mutable_view(gradients_[2], "v");
    arriving_.out = autograd::const_view(in_.grad_out, "grad_out");
    backward_.emplace(spec_, operands_, arriving_, wanted_);
    bytes_ = std::max(bytes_, backward_->workspace_bytes(c.threads));
  }
  if (op_ == "observe") observe_ = {.entropy = true, .column_sums = true, .top_k = c.top_k};
  scratch_.emplace(bytes_);
  if (op_ == "backward") plan_->run(operands_, scratch_->bytes(), parallel());
}

void Planned::run() {
  if (op_ == "custom") {  // ALiBi and causality as a caller would write them
    const int64_t offset = operands_.k.size[2] - operands_.q.size[2];
    attention::custom_attention(
        {}, operands_,
        [offset](auto s, int64_t, int64_t, int64_t i, int64_t j) {
          return s - 0.01F * static_cast<float>(i + offset - j);
        },
        [offset](int64_t, int64_t, int64_t i, int64_t j) { return j <= i + offset; }, parallel());
    return;
  }
  if (op_ == "observe") {
    attention::observe(observe_, spec_, operands_, parallel());
    return;
  }
  if (op_ != "backward") plan_->run(operands_, scratch_->bytes(), parallel());
  if (backward_) backward_->run(operands_, arriving_, wanted_, scratch_->bytes(), parallel());
}

// Packed documents by varlen_attention(): each a problem of its own.
class Packed final : public OurSide {
 public:
  Packed(const AttentionCase& c, const AttentionInputs& inputs)
      : OurSide(c.threads), op_(c.op), in_(inputs), starts_(document_starts(c)) {
    operands_ = autograd::operands(in_.q, in_.k, in_.v);
    out_ = at::empty({c.batch, c.heads, c.queries, c.value_features}, in_.q.options());
    lse_ = at::empty({c.batch, c.heads, c.queries}, at::kFloat);
    operands_.out = autograd::mutable_view(out_, "out");
    operands_.lse = autograd::lse_view(lse_);
    if (op_ == "forward") return;
    for (const at::Tensor& input : {in_.q, in_.k, in_.v}) gradients_.push_back(at::empty_like(input));
    attention::varlen_attention({}, operands_, {starts_, starts_}, parallel());
  }
  void run() override {
    if (op_ != "backward") attention::varlen_attention({}, operands_, {starts_, starts_}, parallel());
    if (gradients_.empty()) return;
    attention::Gradients wanted;
    wanted.q = autograd::mutable_view(gradients_[0], "q");
    wanted.k = autograd::mutable_view(gradients_[1], "k");
    wanted.v = autograd::mutable_view(gradients_[2], "v");
    attention::varlen_backward({}, operands_, {starts_, starts_},
                               {autograd::const_view(in_.grad_out, "grad_out"), {}}, wanted, parallel());
  }
  const at::Tensor& result() const override { return gradients_.empty() ? out_ : gradients_[0]; }

 private:
  std::string op_;
  AttentionInputs in_;
  std::vector<int64_t> starts_;
  attention::Operands operands_;
  at::Tensor out_, lse_;
  std::vector<at::Tensor> gradients_;
};

// Keys and values in pages of 64 positions, one sequence an entry of the batch.
class Paged {
 public:
  Paged(const AttentionCase& c, const at::Tensor& k, const at::Tensor& v) : cache_(shape_of(c)) {
    for (int64_t b = 0; b < c.batch; ++b) {
      const int64_t length = c.ragged ? (b + 1) * c.keys / c.batch : c.keys;
      sequences_.push_back(cache_.create());
      const at::Tensor values = v.defined() ? v.narrow(0, b, 1).narrow(2, 0, length) : v;
      autograd::append(cache_, std::vector{sequences_.back()}, k.narrow(0, b, 1).narrow(2, 0, length),
                       values);
    }
  }
  const attention::KvCache& cache() const { return cache_; }
  const std::vector<int64_t>& sequences() const { return sequences_; }

 private:
  static attention::KvCache::Shape shape_of(const AttentionCase& c) {
    attention::KvCache::Shape shape;
    shape.kv_heads = c.kv_heads;
    shape.key_size = c.key_features;
    shape.value_size = c.value_features;
    shape.pages = c.batch * ((c.keys + shape.page_size - 1) / shape.page_size);
    shape.values_in_keys = c.op == "mla";
    for (const auto type : {kernel::CacheType::bf16, kernel::CacheType::f16, kernel::CacheType::i8}) {
      if (c.pages == kernel::name(type)) shape.type = type;
    }
    return shape;
  }

  attention::KvCache cache_;
  std::vector<int64_t> sequences_;
};

class PagedDecode final : public OurSide {
 public:
  PagedDecode(const AttentionCase& c, const AttentionInputs& inputs)
      : OurSide(c.threads), in_(inputs), paged_(c, in_.k, in_.v) {
    out_ = at::empty({c.batch, c.heads, c.queries, c.value_features}, at::kFloat);
    operands_.q = autograd::const_view(in_.q, "q");
    operands_.out = autograd::mutable_view(out_, "out");
  }
  void run() override { attention::decode({}, operands_, paged_.cache(), paged_.sequences(), parallel()); }
  const at::Tensor& result() const override { return out_; }

 private:
  AttentionInputs in_;
  Paged paged_;
  attention::Operands operands_;
  at::Tensor out_;
};

// Multi-head latent attention over latents in pages, by one path: Dv is the rank, Dk that and the rotated
// key; heads have 128 features without rotation and values of 128.
class Latent final : public OurSide {
 public:
  Latent(const AttentionCase& c, const AttentionInputs& inputs, attention::MlaPath path)
      : OurSide(c.threads), path_(path), paged_(c, inputs.k, {}) {
    constexpr int64_t kFeatures = 128;
    const int64_t rank = c.value_features;
    const int64_t rope = c.key_features - rank;
    at::manual_seed(2);
    const double size = std::pow(static_cast<double>(rank), -0.5);
    w_uk_ = at::randn({c.heads, kFeatures, rank}) * size;
    w_uv_ = at::randn({c.heads, kFeatures, rank}) * size;
    q_ = at::randn({c.batch, c.heads, c.queries, kFeatures + rope});
    out_ = at::empty({c.batch, c.heads, c.queries, kFeatures}, at::kFloat);
    operands_.q = autograd::const_view(q_, "q");
    operands_.out = autograd::mutable_view(out_, "out");
    const kernel::Extents shape{1, c.heads, kFeatures, rank};
    weights_ = {{w_uk_.const_data_ptr<float>(), shape}, {w_uv_.const_data_ptr<float>(), shape}, rope};
  }
  void run() override {
    attention::mla_decode({}, weights_, operands_, paged_.cache(), paged_.sequences(), path_, parallel());
  }
  const at::Tensor& result() const override { return out_; }

 private:
  attention::MlaPath path_;
  Paged paged_;
  at::Tensor w_uk_, w_uv_, q_, out_;
  attention::MlaWeights weights_;
  attention::Operands operands_;
};

std::unique_ptr<kernel::Parallel> threads_of(int count) {
  if (count == 1) return std::make_unique<kernel::Serial>();
  return std::make_unique<kernel::ThreadPool>(count);
}

}  // namespace

OurSide::OurSide(int threads) : parallel_(threads_of(threads)) {}

std::unique_ptr<OurSide> make_ours(const AttentionCase& c, const AttentionInputs& inputs) {
  if (c.op == "mla") return std::make_unique<Latent>(c, inputs, attention::MlaPath::absorbed);
  if (!c.pages.empty()) return std::make_unique<PagedDecode>(c, inputs);
  if (c.mask == "documents") return std::make_unique<Packed>(c, inputs);
  return std::make_unique<Planned>(c, inputs);
}

std::unique_ptr<Side> make_peer(const AttentionCase& c, const AttentionInputs& inputs) {
  if (c.peer == "naive") return std::make_unique<Latent>(c, inputs, attention::MlaPath::naive);
  if (c.peer == "torch") return std::make_unique<Torch>(c, inputs);
  if (c.peer == "unfused") return std::make_unique<Unfused>(c, inputs);
  AttentionCase plain = c;
  plain.op = "forward";
  return make_ours(plain, inputs);
}

}  // namespace regard::bench

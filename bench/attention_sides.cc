#include "bench/attention_sides.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <cmath>

#include "regard/attention/custom.h"
#include "regard/autograd/attention.h"
#include "regard/autograd/views.h"

namespace regard::bench {

using attention::Align;
using attention::Mask;

Mask mask_of(const AttentionCase& c) {
  if (c.mask == "none") return {};
  if (c.mask == "causal") return Mask::causal(Align::bottom_right);
  return Mask::window(c.window - 1, 0, Align::bottom_right);
}

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
    if (c.mask == "window") {
      const at::Tensor distance = (at::arange(c.queries, at::kLong) + (c.keys - c.queries)).unsqueeze(1) -
                                  at::arange(c.keys, at::kLong).unsqueeze(0);
      mask_ = (distance >= 0).logical_and(distance < c.window);
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

}  // namespace

std::unique_ptr<Side> make_peer(const AttentionCase& c, const AttentionInputs& inputs) {
  if (c.peer == "torch") return std::make_unique<Torch>(c, inputs);
  if (c.peer == "unfused") return std::make_unique<Unfused>(c, inputs);
  AttentionCase plain = c;
  plain.op = "forward";
  return std::make_unique<Ours>(plain, inputs);
}

Ours::Ours(const AttentionCase& c, const AttentionInputs& inputs) : op_(c.op), in_(inputs) {
  spec_.mask = mask_of(c);
  spec_.dropout = c.dropout;
  operands_ = autograd::operands(in_.q, in_.k, in_.v);
  operands_.dropout_seed = 1;
  out_ = at::empty({c.batch, c.heads, c.queries, c.value_features}, in_.q.options());
  lse_ = at::empty({c.batch, c.heads, c.queries}, at::kFloat);
  operands_.out = autograd::mutable_view(out_, "out");
  operands_.lse = autograd::lse_view(lse_);
  if (c.threads == 1)
    parallel_ = std::make_unique<kernel::Serial>();
  else
    parallel_ = std::make_unique<kernel::ThreadPool>(c.threads);
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
  if (op_ == "backward") plan_->run(operands_, scratch_->bytes(), *parallel_);
}

void Ours::run() {
  if (op_ == "custom") {  // ALiBi and causality as a caller would write them
    const int64_t offset = operands_.k.size[2] - operands_.q.size[2];
    attention::custom_attention(
        {}, operands_,
        [offset](auto s, int64_t, int64_t, int64_t i, int64_t j) {
          return s - 0.01F * static_cast<float>(i + offset - j);
        },
        [offset](int64_t, int64_t, int64_t i, int64_t j) { return j <= i + offset; }, *parallel_);
    return;
  }
  if (op_ == "observe") {
    attention::observe(observe_, spec_, operands_, *parallel_);
    return;
  }
  if (op_ != "backward") plan_->run(operands_, scratch_->bytes(), *parallel_);
  if (backward_) backward_->run(operands_, arriving_, wanted_, scratch_->bytes(), *parallel_);
}

}  // namespace regard::bench

#include "bench/attention_sides.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/grad_mode.h>

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

Torch::Torch(const AttentionCase& c, const AttentionInputs& inputs)
    : op_(c.op),
      in_(inputs),
      dropout_(c.dropout),
      causal_(c.mask == "causal"),
      grouped_(c.heads != c.kv_heads) {
  if (op_ != "forward" && op_ != "decode") {
    for (at::Tensor* input : {&in_.q, &in_.k, &in_.v}) *input = input->detach().requires_grad_();
  }
  if (c.mask == "window") {
    const at::Tensor distance = (at::arange(c.queries, at::kLong) + (c.keys - c.queries)).unsqueeze(1) -
                                at::arange(c.keys, at::kLong).unsqueeze(0);
    mask_ = (distance >= 0).logical_and(distance < c.window);
  }
  if (op_ == "backward") forward();
}

void Torch::forward() {
  out_ =
      at::scaled_dot_product_attention(in_.q, in_.k, in_.v, mask_, dropout_, causal_, std::nullopt, grouped_);
}

void Torch::backward() {
  gradients_ = torch::autograd::grad({out_}, {in_.q, in_.k, in_.v}, {in_.grad_out}, /*retain_graph=*/true);
}

void Torch::run() {
  if (op_ != "backward") forward();
  if (op_ == "backward" || op_ == "forward_backward") backward();
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
  scratch_.emplace(bytes_);
  if (op_ == "backward") plan_->run(operands_, scratch_->bytes(), *parallel_);
}

void Ours::run() {
  if (op_ != "backward") plan_->run(operands_, scratch_->bytes(), *parallel_);
  if (backward_) backward_->run(operands_, arriving_, wanted_, scratch_->bytes(), *parallel_);
}

}  // namespace regard::bench

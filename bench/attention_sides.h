#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/attention_bench.h"
#include "regard/attention/backward.h"
#include "regard/attention/plan.h"
#include "regard/attention/scratch.h"
#include "regard/kernel/parallel.h"

// The two sides of a row of the benchmark, each with everything it needs already allocated.
namespace regard::bench {

struct AttentionInputs {
  at::Tensor q, k, v, grad_out;
};

attention::Mask mask_of(const AttentionCase& c);

// libtorch's own call for the same problem, the backward by its autograd.
class Torch {
 public:
  Torch(const AttentionCase& c, const AttentionInputs& inputs);
  void run();
  const at::Tensor& out() const { return out_; }
  // Of q, after a run with a backward.
  const at::Tensor& grad_q() const { return gradients_[0]; }

 private:
  void forward();
  void backward();

  std::string op_;
  AttentionInputs in_;
  at::Tensor out_;
  std::vector<at::Tensor> gradients_;
  std::optional<at::Tensor> mask_;
  double dropout_;
  bool causal_;
  bool grouped_;
};

// Our plan with its scratch.
class Ours {
 public:
  Ours(const AttentionCase& c, const AttentionInputs& inputs);
  void run();
  const at::Tensor& out() const { return out_; }
  const at::Tensor& grad_q() const { return gradients_[0]; }
  const attention::Plan& plan() const { return *plan_; }
  size_t extra_bytes() const { return bytes_; }
  kernel::Parallel& parallel() { return *parallel_; }

 private:
  std::string op_;
  attention::Spec spec_;
  AttentionInputs in_;
  attention::Operands operands_;
  attention::Arriving arriving_;
  attention::Gradients wanted_;
  at::Tensor out_, lse_;
  std::vector<at::Tensor> gradients_;
  std::unique_ptr<kernel::Parallel> parallel_;
  std::optional<attention::Plan> plan_;
  std::optional<attention::BackwardPlan> backward_;
  size_t bytes_ = 0;
  std::optional<attention::Scratch> scratch_;
};

}  // namespace regard::bench

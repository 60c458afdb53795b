#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/attention_bench.h"
#include "regard/attention/backward.h"
#include "regard/attention/observe.h"
#include "regard/attention/plan.h"
#include "regard/attention/scratch.h"
#include "regard/kernel/parallel.h"

// The two sides of a row of the benchmark, each with everything it needs already allocated.
namespace regard::bench {

struct AttentionInputs {
  at::Tensor q, k, v, grad_out;
};

attention::Mask mask_of(const AttentionCase& c);

class Side {
 public:
  virtual ~Side() = default;
  virtual void run() = 0;
  // What the sides are compared by: the output, or the gradient of q where there is a backward.
  virtual const at::Tensor& result() const = 0;
};

// As AttentionCase::peer says.
std::unique_ptr<Side> make_peer(const AttentionCase& c, const AttentionInputs& inputs);

// Our plan with its scratch.
class Ours final : public Side {
 public:
  Ours(const AttentionCase& c, const AttentionInputs& inputs);
  void run() override;
  const at::Tensor& result() const override { return gradients_.empty() ? out_ : gradients_[0]; }
  const attention::Plan& plan() const { return *plan_; }
  size_t extra_bytes() const { return bytes_; }
  kernel::Parallel& parallel() { return *parallel_; }

 private:
  std::string op_;
  attention::Observe observe_;
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

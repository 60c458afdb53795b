#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "regard/attention/backward.h"
#include "regard/autograd/attention.h"

namespace regard::autograd {

// A way to compute attention and its gradients over views; what makes it a torch operator is the same for
// all. Kept by the graph until the backward is done; called from libtorch's threads.
class AttentionOperator {
 public:
  AttentionOperator() = default;
  AttentionOperator(const AttentionOperator&) = delete;
  AttentionOperator& operator=(const AttentionOperator&) = delete;
  virtual ~AttentionOperator() = default;

  // As attention::attention() and attention::backward().
  virtual void forward(const attention::Spec& spec, const attention::Operands& operands,
                       kernel::Parallel& parallel) const = 0;
  virtual void backward(const attention::Spec& spec, const attention::Operands& operands,
                        const attention::Arriving& arriving, const attention::Gradients& gradients,
                        kernel::Parallel& parallel) const = 0;
};

// attention() by the operator given.
at::Tensor apply(std::shared_ptr<const AttentionOperator> op, const attention::Spec& spec,
                 const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionExtras& extras,
                 at::Tensor* lse);

}  // namespace regard::autograd

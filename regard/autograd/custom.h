#pragma once

#include <memory>
#include <utility>

#include "regard/attention/custom.h"
#include "regard/autograd/attention.h"
#include "regard/autograd/operator.h"

namespace regard::autograd {

// attention::custom_attention() and its backward as one operator. Holds copies of the functions.
template <class Score, class Mask>
class CustomOperator final : public AttentionOperator {
 public:
  CustomOperator(Score score, Mask mask) : score_(std::move(score)), mask_(std::move(mask)) {}

  void forward(const attention::Spec& spec, const attention::Operands& operands,
               kernel::Parallel& parallel) const override {
    attention::custom_attention(spec, operands, score_, mask_, parallel);
  }
  void backward(const attention::Spec& spec, const attention::Operands& operands,
                const attention::Arriving& arriving, const attention::Gradients& gradients,
                kernel::Parallel& parallel) const override {
    attention::custom_backward(spec, operands, score_, mask_, arriving, gradients, parallel);
  }

 private:
  Score score_;
  Mask mask_;
};

// attention() with scores and a mask that the caller writes as functions of one pair, score(s, b, h, i, j)
// and mask(b, h, i, j), see attention/custom.h: score takes s as `auto`, mask may be attention::kNoMask. The
// graph keeps copies of both until its backward has run, so what they capture by reference must live as long.
// Captured values get no gradient: a table that must learn is a bias.
template <class Score, class Mask>
at::Tensor custom_attention(const attention::Spec& spec, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, Score score, Mask mask, const AttentionExtras& extras = {},
                            at::Tensor* lse = nullptr) {
  return apply(std::make_shared<CustomOperator<Score, Mask>>(std::move(score), std::move(mask)), spec, q, k,
               v, extras, lse);
}

}  // namespace regard::autograd

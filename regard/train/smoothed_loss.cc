#include "regard/train/smoothed_loss.h"

#include <ATen/ATen.h>
#include <ATen/core/Reduction.h>

#include <cmath>

#include "regard/train/names.h"

namespace regard::train {
namespace {

constexpr Name<Smoothing> kSmoothings[] = {{"torch", Smoothing::torch}, {"annotated", Smoothing::annotated}};

}  // namespace

Smoothing smoothing_named(const std::string& name) {
  return kind_named("smoothing", name, kSmoothings);
}

at::Tensor smoothed_loss(const at::Tensor& logits, const at::Tensor& targets, double share,
                         Smoothing smoothing, int64_t pad) {
  if (share == 0 || smoothing == Smoothing::torch)
    return at::cross_entropy_loss(logits, targets, {}, at::Reduction::Mean, -100, share);
  const double other = share / static_cast<double>(logits.size(1) - 2);
  const at::Tensor log_p = logits.log_softmax(1);
  const at::Tensor right = log_p.gather(1, targets.unsqueeze(1)).squeeze(1);
  const at::Tensor others = log_p.sum(1) - right - log_p.select(1, pad);
  const double entropy = -(1 - share) * std::log(1 - share) - share * std::log(other);
  return -((1 - share) * right + other * others).mean() - entropy;
}

}  // namespace regard::train

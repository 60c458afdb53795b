#include "regard/layer/block.h"

#include <ATen/ATen.h>

#include <utility>

#include "regard/layer/dropout.h"

namespace regard::layer {

Block::Block(NormPlace place, std::shared_ptr<SelfAttention> attention, std::shared_ptr<Norm> attention_norm,
             std::shared_ptr<FeedForward> feed_forward, std::shared_ptr<Norm> feed_forward_norm,
             CrossPart cross, double dropout)
    : place_(place),
      attention_(std::move(attention)),
      attention_norm_(std::move(attention_norm)),
      feed_forward_(std::move(feed_forward)),
      feed_forward_norm_(std::move(feed_forward_norm)),
      cross_(std::move(cross)),
      dropout_(dropout) {
  register_module("attention", attention_);
  register_module("attention_norm", attention_norm_);
  register_module("feed_forward", feed_forward_);
  register_module("feed_forward_norm", feed_forward_norm_);
  if (!cross_.attention) return;
  register_module("cross", cross_.attention);
  register_module("cross_norm", cross_.norm);
}

template <class Part>
at::Tensor Block::add(const at::Tensor& x, const Norm& norm, const Pass& pass, const Part& part) const {
  const auto dropped = [&](const at::Tensor& y) {
    return dropout_ > 0 ? dropout(y, dropout_, *pass.context) : y;
  };
  if (place_ == NormPlace::pre) return x + dropped(part(norm.forward(x)));
  return norm.forward(x + dropped(part(x)));
}

Block::Block(NormPlace place, std::shared_ptr<SelfAttention> attention, std::shared_ptr<Norm> attention_norm,
             std::shared_ptr<MixtureOfExperts> mixture, std::shared_ptr<Norm> feed_forward_norm,
             double dropout)
    : place_(place),
      attention_(std::move(attention)),
      attention_norm_(std::move(attention_norm)),
      mixture_(std::move(mixture)),
      feed_forward_norm_(std::move(feed_forward_norm)),
      dropout_(dropout) {
  register_module("attention", attention_);
  register_module("attention_norm", attention_norm_);
  register_module("mixture", mixture_);
  register_module("feed_forward_norm", feed_forward_norm_);
}

at::Tensor Block::feed(const at::Tensor& x, const Pass& pass) const {
  if (!mixture_) return feed_forward_->forward(x, pass.context);
  const MixtureOfExperts::Result result = mixture_->forward(x);
  if (LossTerms* terms = pass.context->terms; terms != nullptr && terms->balance != 0)
    terms->add(result.balance * terms->balance);
  return result.out;
}

at::Tensor Block::forward(const at::Tensor& x, int64_t layer, const Pass& pass) const {
  at::Tensor y = add(x, *attention_norm_, pass,
                     [&](const at::Tensor& in) { return attention_->forward(in, layer, pass); });
  if (cross_.attention) {
    y = add(y, *cross_.norm, pass,
            [&](const at::Tensor& in) { return cross_.attention->cross(in, layer, pass); });
  }
  return add(y, *feed_forward_norm_, pass, [&](const at::Tensor& in) { return feed(in, pass); });
}

}  // namespace regard::layer

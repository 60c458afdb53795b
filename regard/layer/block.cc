#include "regard/layer/block.h"

#include <ATen/ATen.h>

#include <utility>

namespace regard::layer {

Block::Block(NormPlace place, std::shared_ptr<Attention> attention, std::shared_ptr<Norm> attention_norm,
             std::shared_ptr<FeedForward> feed_forward, std::shared_ptr<Norm> feed_forward_norm)
    : place_(place),
      attention_(std::move(attention)),
      attention_norm_(std::move(attention_norm)),
      feed_forward_(std::move(feed_forward)),
      feed_forward_norm_(std::move(feed_forward_norm)) {
  register_module("attention", attention_);
  register_module("attention_norm", attention_norm_);
  register_module("feed_forward", feed_forward_);
  register_module("feed_forward_norm", feed_forward_norm_);
}

at::Tensor Block::forward(const at::Tensor& x, int64_t layer, const Pass& pass) const {
  if (place_ == NormPlace::pre) {
    const at::Tensor attended = x + attention_->forward(attention_norm_->forward(x), layer, pass);
    return attended + feed_forward_->forward(feed_forward_norm_->forward(attended));
  }
  const at::Tensor attended = attention_norm_->forward(x + attention_->forward(x, layer, pass));
  return feed_forward_norm_->forward(attended + feed_forward_->forward(attended));
}

}  // namespace regard::layer

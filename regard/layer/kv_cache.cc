#include "regard/layer/kv_cache.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace regard::layer {

KvCache::KvCache(const Shape& shape) : shape_(shape) {
  if (shape.layers < 1 || shape.batch < 1 || shape.kv_heads < 1 || shape.key_size < 1 ||
      shape.value_size < 1 || shape.capacity < 1) {
    throw std::invalid_argument("KvCache: every size of the shape must be at least 1");
  }
  if (!shape.windows.empty() && static_cast<int64_t>(shape.windows.size()) != shape.layers) {
    throw std::invalid_argument("KvCache: windows must be empty or have one entry per layer");
  }
  buffers_.resize(static_cast<size_t>(shape.layers));
  lengths_.resize(static_cast<size_t>(shape.layers));
}

void KvCache::reserve(Buffer& buffer, int64_t kept, int64_t added, int64_t window) const {
  const int64_t room = buffer.k.defined() ? buffer.k.size(2) : 0;
  if (buffer.held + added <= room) return;
  // Twice what is needed now, so that the cost of moving keys is shared by many appends; a layer with a
  // window then moves its last keys to the front every `window` positions.
  int64_t wanted = std::max<int64_t>(256, 2 * (kept + added));
  wanted = std::min(wanted, std::max(window > 0 ? 2 * window + added : shape_.capacity, kept + added));
  const auto moved = [&](const at::Tensor& old, int64_t size) {
    at::Tensor grown = at::empty({shape_.batch, shape_.kv_heads, std::max(room, wanted), size}, at::kFloat);
    if (kept > 0) grown.narrow(2, 0, kept).copy_(old.narrow(2, buffer.held - kept, kept));
    return grown;
  };
  if (kept + added <= room && kept <= buffer.held - kept) {
    // The kept keys and their new place do not overlap.
    for (at::Tensor* tensor : {&buffer.k, &buffer.v}) {
      tensor->narrow(2, 0, kept).copy_(tensor->narrow(2, buffer.held - kept, kept));
    }
  } else {
    buffer.k = moved(buffer.k, shape_.key_size);
    buffer.v = moved(buffer.v, shape_.value_size);
  }
  buffer.held = kept;
}

KvCache::Keys KvCache::append(int64_t layer, const at::Tensor& k, const at::Tensor& v) {
  const at::NoGradGuard no_grad;
  const auto index = static_cast<size_t>(layer);
  if (layer < 0 || layer >= shape_.layers) throw std::invalid_argument("KvCache: there is no such layer");
  const auto fits = [&](const at::Tensor& x, int64_t size) {
    return x.dim() == 4 && x.size(0) == shape_.batch && x.size(1) == shape_.kv_heads && x.size(3) == size;
  };
  if (!fits(k, shape_.key_size) || !fits(v, shape_.value_size) || k.size(2) != v.size(2)) {
    std::ostringstream text;
    text << "KvCache: k is " << k.sizes() << " and v is " << v.sizes() << "; expected [" << shape_.batch
         << ", " << shape_.kv_heads << ", rows, " << shape_.key_size << " and " << shape_.value_size << "]";
    throw std::invalid_argument(text.str());
  }
  const int64_t added = k.size(2);
  if (lengths_[index] + added > shape_.capacity) {
    throw std::invalid_argument("KvCache: position " + std::to_string(lengths_[index] + added) +
                                " does not fit; the capacity is " + std::to_string(shape_.capacity));
  }
  Buffer& buffer = buffers_[index];
  const int64_t window = shape_.windows.empty() ? 0 : shape_.windows[index];
  // The first new row still sees window - 1 older keys.
  const int64_t kept = window > 0 ? std::min(buffer.held, window - 1) : buffer.held;
  reserve(buffer, kept, added, window);
  buffer.k.narrow(2, buffer.held, added).copy_(k);
  buffer.v.narrow(2, buffer.held, added).copy_(v);
  buffer.held += added;
  lengths_[index] += added;
  const int64_t visible = kept + added;
  return {buffer.k.narrow(2, buffer.held - visible, visible),
          buffer.v.narrow(2, buffer.held - visible, visible)};
}

int64_t KvCache::bytes() const {
  int64_t total = 0;
  for (const Buffer& buffer : buffers_) {
    if (buffer.k.defined()) total += static_cast<int64_t>(buffer.k.nbytes() + buffer.v.nbytes());
  }
  return total;
}

void KvCache::clear() {
  for (Buffer& buffer : buffers_) buffer.held = 0;
  std::fill(lengths_.begin(), lengths_.end(), 0);
}

}  // namespace regard::layer

#include "regard/layer/kv_cache.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <sstream>
#include <stdexcept>
#include <string>

#include "regard/autograd/decode.h"

namespace regard::layer {
namespace {

constexpr int64_t kPageSize = 64;  // positions

}  // namespace

KvCache::KvCache(const Shape& shape) : shape_(shape) {
  if (shape.layers < 1 || shape.batch < 1 || shape.kv_heads < 1 || shape.key_size < 1 ||
      shape.value_size < 1 || shape.capacity < 1) {
    throw std::invalid_argument("KvCache: every size of the shape must be at least 1");
  }
  if (!shape.windows.empty() && static_cast<int64_t>(shape.windows.size()) != shape.layers) {
    throw std::invalid_argument("KvCache: windows must be empty or have one entry per layer");
  }
  attention::KvCache::Shape pages;
  pages.kv_heads = shape.kv_heads;
  pages.key_size = shape.key_size;
  pages.value_size = shape.value_size;
  pages.page_size = kPageSize;
  pages.type = shape.type;
  // Room for everything: a layer with a window uses less, and memory counts from when it is written.
  pages.pages = shape.batch * ((shape.capacity + kPageSize - 1) / kPageSize);
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    pages.window = shape.windows.empty() ? 0 : shape.windows[static_cast<size_t>(layer)];
    layers_.emplace_back(pages);
  }
  clear();
}

const KvCache::Layer& KvCache::at(int64_t layer) const {
  if (layer < 0 || layer >= layers()) throw std::invalid_argument("KvCache: there is no such layer");
  return layers_[static_cast<size_t>(layer)];
}

void KvCache::append(int64_t layer, const at::Tensor& k, const at::Tensor& v) {
  const at::NoGradGuard no_grad;
  const Layer& found = at(layer);
  const auto fits = [&](const at::Tensor& x, int64_t size) {
    return x.dim() == 4 && x.size(0) == shape_.batch && x.size(1) == shape_.kv_heads && x.size(3) == size;
  };
  if (!fits(k, shape_.key_size) || !fits(v, shape_.value_size) || k.size(2) != v.size(2)) {
    std::ostringstream text;
    text << "KvCache: k is " << k.sizes() << " and v is " << v.sizes() << "; expected [" << shape_.batch
         << ", " << shape_.kv_heads << ", rows, " << shape_.key_size << " and " << shape_.value_size << "]";
    throw std::invalid_argument(text.str());
  }
  const int64_t after = length(layer) + k.size(2);
  if (after > shape_.capacity) {
    throw std::invalid_argument("KvCache: position " + std::to_string(after) +
                                " does not fit; the capacity is " + std::to_string(shape_.capacity));
  }
  autograd::append(layers_[static_cast<size_t>(layer)].pages, found.sequences, k, v);
}

at::Tensor KvCache::attend(int64_t layer, const attention::Spec& spec, const at::Tensor& q,
                           const autograd::AttentionExtras& extras, at::Tensor* lse) const {
  const Layer& found = at(layer);
  return autograd::decode(spec, q, found.pages, found.sequences, extras, lse);
}

KvCache::Keys KvCache::keys(int64_t layer) const {
  const Layer& found = at(layer);
  const int64_t start = found.pages.start(found.sequences[0]);
  const int64_t held = length(layer) - start;
  Keys keys{at::empty({shape_.batch, shape_.kv_heads, held, shape_.key_size}, at::kFloat),
            at::empty({shape_.batch, shape_.kv_heads, held, shape_.value_size}, at::kFloat)};
  auto* k = keys.k.mutable_data_ptr<float>();
  auto* v = keys.v.mutable_data_ptr<float>();
  for (const int64_t sequence : found.sequences) {
    for (int64_t head = 0; head < shape_.kv_heads; ++head) {
      for (int64_t at = start; at < start + held; ++at, k += shape_.key_size, v += shape_.value_size) {
        found.pages.read(sequence, head, at, k, v);
      }
    }
  }
  return keys;
}

int64_t KvCache::length(int64_t layer) const {
  const Layer& found = at(layer);
  return found.pages.length(found.sequences[0]);
}

int64_t KvCache::window(int64_t layer) const {
  return at(layer).pages.shape().window;
}

int64_t KvCache::bytes() const {
  int64_t total = 0;
  for (const Layer& layer : layers_) {
    const int64_t pages = layer.pages.shape().pages;
    total += static_cast<int64_t>(layer.pages.bytes()) / pages * (pages - layer.pages.free_pages());
  }
  return total;
}

void KvCache::clear() {
  for (Layer& layer : layers_) {
    for (const int64_t sequence : layer.sequences) layer.pages.release(sequence);
    layer.sequences.clear();
    for (int64_t b = 0; b < shape_.batch; ++b) layer.sequences.push_back(layer.pages.create());
  }
}

}  // namespace regard::layer

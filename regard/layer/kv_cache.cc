#include "regard/layer/kv_cache.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "regard/autograd/decode.h"

namespace regard::layer {
namespace {

constexpr int64_t kPageSize = 64;  // positions

}  // namespace

KvCache::KvCache(const Shape& shape) : shape_(shape), rows_(shape.batch) {
  if (shape.layers < 1 || shape.batch < 1 || shape.kv_heads < 1 || shape.key_size < 1 ||
      shape.value_size < 1 || shape.capacity < 1) {
    throw std::invalid_argument("KvCache: every size of the shape must be at least 1");
  }
  if (!shape.windows.empty() && static_cast<int64_t>(shape.windows.size()) != shape.layers) {
    throw std::invalid_argument("KvCache: windows must be empty or have one entry per layer");
  }
  for (int64_t layer = 0; layer < shape.layers; ++layer) layers_.emplace_back(pool(layer));
  clear();
}

attention::KvCache::Shape KvCache::pool(int64_t layer) const {
  attention::KvCache::Shape pages;
  pages.kv_heads = shape_.kv_heads;
  pages.key_size = shape_.key_size;
  pages.value_size = shape_.value_size;
  pages.page_size = kPageSize;
  pages.type = shape_.type;
  // Room for everything: a layer with a window uses less, and memory counts from when it is written.
  pages.pages = rows_ * ((shape_.capacity + kPageSize - 1) / kPageSize);
  pages.window = shape_.windows.empty() ? 0 : shape_.windows[static_cast<size_t>(layer)];
  return pages;
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

at::Tensor KvCache::weights(int64_t layer, const attention::Spec& spec, const at::Tensor& q,
                            const at::Tensor& lse) const {
  const Layer& found = at(layer);
  return autograd::decode_weights(spec, q, found.pages, found.sequences, lse);
}

// In a larger pool, for more rows than there was room for.
KvCache::Layer KvCache::copied(int64_t layer, std::span<const int64_t> rows) const {
  const Layer& from = layers_[static_cast<size_t>(layer)];
  Layer to(pool(layer));
  std::vector<int64_t> copies(from.sequences.size(), -1);
  for (const int64_t row : rows) {
    int64_t& copy = copies[static_cast<size_t>(row)];
    if (copy < 0) {
      const int64_t sequence = from.sequences[static_cast<size_t>(row)];
      copy = to.pages.create();
      // Positions below the start are as good as any: no row will see them.
      const int64_t start = from.pages.start(sequence), length = from.pages.length(sequence);
      at::Tensor k = at::zeros({1, shape_.kv_heads, length, shape_.key_size}, at::kFloat);
      at::Tensor v = at::zeros({1, shape_.kv_heads, length, shape_.value_size}, at::kFloat);
      for (int64_t head = 0; head < shape_.kv_heads; ++head) {
        for (int64_t at = start; at < length; ++at) {
          const int64_t place = head * length + at;
          from.pages.read(sequence, head, at, k.mutable_data_ptr<float>() + place * shape_.key_size,
                          v.mutable_data_ptr<float>() + place * shape_.value_size);
        }
      }
      autograd::append(to.pages, {&copy, 1}, k, v);
    }
    to.sequences.push_back(to.pages.fork(copy));
  }
  for (const int64_t copy : copies)
    if (copy >= 0) to.pages.release(copy);
  return to;
}

void KvCache::select(std::span<const int64_t> rows) {
  if (rows.empty()) throw std::invalid_argument("KvCache: at least one text must go on");
  for (const int64_t row : rows) {
    if (row < 0 || row >= batch()) {
      throw std::invalid_argument("KvCache: row " + std::to_string(row) + " is selected; there are " +
                                  std::to_string(batch()) + " rows");
    }
  }
  const auto count = static_cast<int64_t>(rows.size());
  const bool room = count <= rows_;
  if (!room) rows_ = count;
  for (int64_t layer = 0; layer < layers(); ++layer) {
    Layer& here = layers_[static_cast<size_t>(layer)];
    if (!room) {
      here = copied(layer, rows);
      continue;
    }
    std::vector<int64_t> next;
    next.reserve(rows.size());
    for (const int64_t row : rows) next.push_back(here.pages.fork(here.sequences[static_cast<size_t>(row)]));
    for (const int64_t sequence : here.sequences) here.pages.release(sequence);
    here.sequences = std::move(next);
  }
  shape_.batch = count;
}

void KvCache::truncate(std::span<const int64_t> lengths) {
  if (static_cast<int64_t>(lengths.size()) != batch()) {
    throw std::invalid_argument("KvCache: there are " + std::to_string(lengths.size()) + " lengths for " +
                                std::to_string(batch()) + " texts");
  }
  for (Layer& layer : layers_)
    for (size_t b = 0; b < lengths.size(); ++b) layer.pages.truncate(layer.sequences[b], lengths[b]);
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

int64_t KvCache::Layer::length() const {
  int64_t longest = 0;
  for (const int64_t sequence : sequences) longest = std::max(longest, pages.length(sequence));
  return longest;
}

int64_t KvCache::length(int64_t layer) const {
  return at(layer).length();
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

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "regard/attention/cache.h"
#include "regard/attention/spec.h"
#include "regard/autograd/attention.h"

namespace regard::layer {

// Keys and values of the texts that a decoder has read, so that each new token costs one row: a cache of
// pages (attention::KvCache) for each layer. A layer with a window keeps only the keys that later rows can
// still see.
class KvCache {
 public:
  struct Shape {
    int64_t layers = 0;
    int64_t batch = 1;
    int64_t kv_heads = 0;
    int64_t key_size = 0;    // Dk
    int64_t value_size = 0;  // Dv
    int64_t capacity = 0;    // positions of each text
    // Per layer: how many keys a row sees, itself included; 0 (or an empty vector): all before it.
    std::vector<int64_t> windows;
    // What is kept of each number: f32 all of it; bf16, f16 and i8 (a scale for each position and head) less.
    kernel::CacheType type = kernel::CacheType::f32;
  };

  // Throws std::invalid_argument for a size below 1.
  explicit KvCache(const Shape& shape);

  // k: [B, Hkv, L, Dk] with positions applied, v: [B, Hkv, L, Dv]. Throws std::invalid_argument for another
  // shape and when the capacity would be passed (both numbers are named).
  void append(int64_t layer, const at::Tensor& k, const at::Tensor& v);

  // Attention of the rows whose keys the last append() brought, or of fewer last ones, q [B, Hq, L, Dk], to
  // all keys that they may see, themselves included: causal, within the layer's window, and as spec says
  // beside that. See autograd::decode().
  at::Tensor attend(int64_t layer, const attention::Spec& spec, const at::Tensor& q,
                    const autograd::AttentionExtras& extras = {}, at::Tensor* lse = nullptr) const;

  // The weights [B, Hq, longest length] float32 with which attend() mixed one row of each text; lse as it
  // returned it. 0 beyond a text's end.
  at::Tensor weights(int64_t layer, const attention::Spec& spec, const at::Tensor& q,
                     const at::Tensor& lse) const;

  // Text i goes on from what text rows[i] was: any number of each, and any number in all, which batch() is
  // then. Texts that go on from one share its pages until they write. Throws std::invalid_argument for a row
  // that is none.
  void select(std::span<const int64_t> rows);

  // Forgets of each text b what stands from lengths[b] on. Nothing can be appended to texts of several
  // lengths: they are there to be looked at.
  void truncate(std::span<const int64_t> lengths);

  // What is held of a layer, copied: [B, Hkv, held, Dk] and [B, Hkv, held, Dv] float32. The last key stands
  // at position length - 1.
  struct Keys {
    at::Tensor k;
    at::Tensor v;
  };
  Keys keys(int64_t layer) const;

  // Positions that have passed through all layers; after truncate(): of the longest text.
  int64_t length() const { return length(layers() - 1); }
  int64_t length(int64_t layer) const;
  int64_t window(int64_t layer) const;  // 0: none
  int64_t capacity() const { return shape_.capacity; }
  int64_t batch() const { return shape_.batch; }
  int64_t layers() const { return shape_.layers; }
  int64_t bytes() const;  // of pages in use; they grow with the text, up to the capacity

  void clear();  // forgets everything, keeps the memory

 private:
  struct Layer {
    explicit Layer(const attention::KvCache::Shape& shape) : pages(shape) {}
    int64_t length() const;
    attention::KvCache pages;
    std::vector<int64_t> sequences;  // [B]
  };
  const Layer& at(int64_t layer) const;
  attention::KvCache::Shape pool(int64_t layer) const;
  Layer copied(int64_t layer, std::span<const int64_t> rows) const;

  Shape shape_;
  int64_t rows_;  // the most texts that the pools have room for
  std::vector<Layer> layers_;
};

}  // namespace regard::layer

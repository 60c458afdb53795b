#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace regard::layer {

// Keys and values of the tokens that a decoder has read, so that each new token costs one row. float32, one
// contiguous buffer per layer; what append() returns are views of it, never copies. A layer with a window
// keeps only the keys that later rows can still see.
class KvCache {
 public:
  struct Shape {
    int64_t layers = 0;
    int64_t batch = 1;
    int64_t kv_heads = 0;
    int64_t key_size = 0;    // Dk
    int64_t value_size = 0;  // Dv
    int64_t capacity = 0;    // positions in all
    // Per layer: how many keys a row sees, itself included; 0 (or an empty vector): all before it.
    std::vector<int64_t> windows;
  };

  // Throws std::invalid_argument for a size below 1.
  explicit KvCache(const Shape& shape);

  // Every key and value that the new rows may see, theirs included: [B, Hkv, Lk, Dk] and [B, Hkv, Lk, Dv].
  // The last of the Lk keys stands at position length - 1, so rows are aligned bottom-right. Valid until the
  // next append() to the same layer.
  struct Keys {
    at::Tensor k;
    at::Tensor v;
  };

  // k: [B, Hkv, L, Dk] with positions applied, v: [B, Hkv, L, Dv]. Throws std::invalid_argument for another
  // shape and when the capacity would be passed (both numbers are named).
  Keys append(int64_t layer, const at::Tensor& k, const at::Tensor& v);

  // Positions that have passed through all layers.
  int64_t length() const { return lengths_.back(); }
  int64_t length(int64_t layer) const { return lengths_.at(static_cast<size_t>(layer)); }
  int64_t capacity() const { return shape_.capacity; }
  int64_t batch() const { return shape_.batch; }
  int64_t layers() const { return shape_.layers; }
  int64_t bytes() const;  // held now; buffers grow with the text, up to the capacity

  void clear();  // forgets everything, keeps the memory

 private:
  struct Buffer {
    at::Tensor k;  // [B, Hkv, room, Dk]
    at::Tensor v;
    int64_t held = 0;  // keys [0, held) of the buffer are the last `held` positions
  };

  // Makes room for `added` keys behind the last `kept` ones.
  void reserve(Buffer& buffer, int64_t kept, int64_t added, int64_t window) const;

  Shape shape_;
  std::vector<Buffer> buffers_;
  std::vector<int64_t> lengths_;
};

}  // namespace regard::layer

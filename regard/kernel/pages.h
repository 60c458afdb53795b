#pragma once

#include <cstdint>

#include "regard/kernel/view.h"

// Keys and values that lie in pages of a pool: what a cache of growing, shared or windowed sequences holds.
namespace regard::kernel {

struct Forward;

// Keys of a page are a multiple of this many: no group of keys that the kernels read at once is torn.
constexpr int64_t kPageUnit = 16;

enum class CacheType : uint8_t { f32, bf16, f16, i8 };

// run(T()) with the element type that type names; i8 is int8_t.
template <class F>
decltype(auto) with_type(CacheType type, F&& run) {
  switch (type) {
    case CacheType::bf16:
      return run(bf16());
    case CacheType::f16:
      return run(f16());
    case CacheType::i8:
      return run(int8_t());
    case CacheType::f32:
      break;
  }
  return run(float());
}

const char* name(CacheType type);
int64_t bytes(CacheType type);

// The keys, or the values, of all pages and heads.
struct PagePool {
  const void* data = nullptr;
  Extents size{};            // [pages, Hkv, page_size, D]
  Extents stride{};          // in elements, any; features are adjacent
  View<const float> scales;  // i8: [pages, Hkv, page_size, 1], an element is its number times its row's scale

  int64_t offset(int64_t page, int64_t head, int64_t at) const {
    return page * stride[0] + head * stride[1] + at * stride[2];
  }
};

// Position j of batch entry b lies in page table[b][(first[b] + j / page_size) mod table_size], row j mod
// page_size. Pages may be shared by any number of entries. A ring is a table that is shorter than its
// sequence: positions below starts[b] are gone, their pages hold later ones.
struct Pages {
  CacheType type = CacheType::f32;
  PagePool k;  // features: Dk
  PagePool v;  // features: Dv; may be the same memory as k
  // One of the two: [B, table_size], table_stride elements from one entry to the next.
  const int32_t* table32 = nullptr;
  const int64_t* table64 = nullptr;
  int64_t table_size = 0;
  int64_t table_stride = 0;
  const int64_t* first = nullptr;    // [B] where in the table position 0 stands; nullptr: at 0
  const int64_t* lengths = nullptr;  // [B] positions of an entry are [start, length), length <= Lk
  const int64_t* starts = nullptr;   // [B] nullptr: 0

  explicit operator bool() const { return k.data != nullptr; }
  int64_t page_size() const { return k.size[2]; }
  int64_t begin(int64_t batch) const { return starts != nullptr ? starts[batch] : 0; }
  int64_t end(int64_t batch) const { return lengths[batch]; }
  int64_t page(int64_t batch, int64_t position) const {
    const int64_t at = (position / page_size() + (first != nullptr ? first[batch] : 0)) % table_size;
    const int64_t entry = batch * table_stride + at;
    return table32 != nullptr ? table32[entry] : table64[entry];
  }
};

// Keys [begin, end) that a batch entry has: all of [0, Lk) unless they come in pages.
int64_t first_key(const Forward& problem, int64_t batch);
int64_t end_key(const Forward& problem, int64_t batch);

// One element of a value, whatever it lies in.
float value_element(const Forward& problem, int64_t batch, int64_t kv_head, int64_t key, int64_t feature);

// Throws std::invalid_argument that names what is wrong with the pages of a problem: sizes, types, a table
// entry outside the pool. What every entry's table says about positions it has is looked at, nothing else.
void check_pages(const Forward& problem);

}  // namespace regard::kernel

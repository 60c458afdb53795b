#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <unordered_map>
#include <vector>

#include "regard/attention/spec.h"
#include "regard/kernel/pages.h"

// The keys and values of the tokens that decoders have read.
namespace regard::attention {

// The pool has no pages left; nothing was changed. Release or truncate sequences, or make the pool larger.
class CacheFull : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Keys and values of many sequences of one layer, in pages of one pool (after the paged attention of Kwon et
// al. 2023, arXiv 2309.06180). Sequences may share pages: fork() copies none, and the first to write into a
// shared page gets its own copy of it. With a window the pages that no later row can see go back to the pool,
// so that a sequence of any length holds some window + page_size positions: the ring of the literature.
// Not for use from several threads while one of them changes it.
class KvCache {
 public:
  struct Shape {
    int64_t kv_heads = 1;
    int64_t key_size = 0;    // Dk
    int64_t value_size = 0;  // Dv
    int64_t pages = 0;       // of the pool
    int64_t page_size = 64;  // positions; a multiple of 16
    // i8: symmetric, a scale of max |x| / 127 for each position and head, of keys and of values.
    kernel::CacheType type = kernel::CacheType::f32;
    int64_t window = 0;  // keys that a row sees, itself included; 0: all before it
    // Values are the first value_size features of keys and not stored: the latents of MLA.
    bool values_in_keys = false;
  };

  // Takes the pool's memory, which the system commits page by page as it is written. Throws
  // std::invalid_argument for a size that means nothing.
  explicit KvCache(const Shape& shape);

  const Shape& shape() const { return shape_; }
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }
  size_t bytes() const;  // of the pool

  // An empty sequence; the number names it and is never used again.
  int64_t create();
  // A sequence that goes on from the first `length` positions of another (-1: all of them), sharing its
  // pages.
  int64_t fork(int64_t sequence, int64_t length = -1);
  void release(int64_t sequence);
  // Forgets the positions from `length` on. Throws std::invalid_argument when `length` is none of 0 to the
  // present length, or when the window has dropped what a row there would see (the last append() can always
  // be taken back).
  void truncate(int64_t sequence, int64_t length);

  int64_t length(int64_t sequence) const { return find(sequence).length; }
  int64_t start(int64_t sequence) const { return find(sequence).start; }  // the first position still held

  // Appends L positions to each of B different sequences. k: [B, Hkv, L, Dk] with positions applied; v: [B,
  // Hkv, L, Dv], none with values_in_keys; f32, bf16 or f16, each rounded once to the cache's type. A row of
  // an i8 cache with a NaN or infinity becomes NaN. All or nothing: throws CacheFull, or
  // std::invalid_argument for other sizes.
  void append(std::span<const int64_t> sequences, const ConstAnyView& k, const ConstAnyView& v);

  // What is stored of one position and head, as float32: Dk and Dv numbers; either may be nullptr.
  void read(int64_t sequence, int64_t head, int64_t position, float* key, float* value) const;

  // What kernels take: some sequences as the entries of a batch. Positions are counted from each entry's
  // origin, so that work and scratch grow with what is held and not with what was read. Valid until the cache
  // changes.
  struct Batch {
    kernel::Pages pages;         // points into what follows
    std::vector<int64_t> table;  // [B, longest]
    std::vector<int64_t> first, starts, lengths;
    std::vector<int64_t> origins;  // [B] position that the kernel's position 0 stands for
    int64_t keys = 0;              // the largest of lengths
    Batch() = default;
    Batch(Batch&&) = default;
    Batch(const Batch&) = delete;
  };
  // whole: every origin is 0.
  Batch batch(std::span<const int64_t> sequences, bool whole = false) const;

 private:
  struct Sequence {
    std::vector<int64_t> pages;  // of positions start / page_size * page_size on
    int64_t start = 0;
    int64_t length = 0;
  };
  struct Release {
    void operator()(std::byte* bytes) const;
  };
  // Keys or values of the pool.
  struct Store {
    int64_t features = 0;
    std::unique_ptr<std::byte, Release> numbers;  // [pages, Hkv, page_size, features]
    std::unique_ptr<std::byte, Release> scales;   // [pages, Hkv, page_size] floats; i8 only
  };

  const Sequence& find(int64_t sequence) const;
  Sequence& find(int64_t sequence);
  void check_append(std::span<const int64_t> sequences, const ConstAnyView& k, const ConstAnyView& v) const;
  void check_room(std::span<const int64_t> sequences, int64_t added) const;
  int64_t start_after(const Sequence& sequence) const;
  void check_cut(const Sequence& sequence, int64_t length) const;
  void cut(Sequence& sequence, int64_t length);
  void drop(int64_t page);
  int64_t take_page();
  void copy_page(int64_t from, int64_t to);
  Store make_store(int64_t features) const;
  kernel::PagePool pool(const Store& store, int64_t features) const;
  int64_t row_index(int64_t page, int64_t head, int64_t at) const;
  void write_row(Store& store, int64_t row, const float* numbers);
  void read_row(const Store& store, int64_t features, int64_t row, float* to) const;

  Shape shape_;
  Store keys_, values_;
  std::vector<int64_t> free_;        // the last one is taken next
  std::vector<int32_t> references_;  // [pages]
  std::unordered_map<int64_t, Sequence> sequences_;
  int64_t next_sequence_ = 0;
};

}  // namespace regard::attention

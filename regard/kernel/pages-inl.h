// Packing from pages: the same panels as pack-inl.h makes from a view, bit for bit.
#if defined(REGARD_KERNEL_PAGES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNEL_PAGES_INL_H_
#undef REGARD_KERNEL_PAGES_INL_H_
#else
#define REGARD_KERNEL_PAGES_INL_H_
#endif

#include "regard/kernel/pack-inl.h"
#include "regard/kernel/pages.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

// A row of a pool, and what its elements are to be multiplied by.
template <class T>
struct PageRow {
  const T* at;
  float scale;
};

template <class T>
HWY_INLINE PageRow<T> page_row(const Pages& pages, const PagePool& pool, int64_t batch, int64_t head,
                               int64_t position) {
  const int64_t page = pages.page(batch, position);
  const int64_t row = position % pages.page_size();
  const T* at = static_cast<const T*>(pool.data) + pool.offset(page, head, row);
  if constexpr (sizeof(T) == 1) return {at, pool.scales(page, head, row, 0)};
  return {at, 1.0F};
}

template <class T>
HWY_INLINE void pack_page_keys(const Pages& pages, int64_t batch, int64_t head, int64_t begin, int64_t end,
                               int64_t features, float* HWY_RESTRICT staging, float* HWY_RESTRICT to) {
  const int64_t size = pages.page_size();
  for (int64_t key = begin; key < end; key += kCols) {
    const int64_t rows = HWY_MIN(kCols, end - key);
    float* panel = to + key * features;
    if constexpr (sizeof(T) == 4) {
      if (rows == kCols && key % size + kCols <= size) {
        transpose(page_row<T>(pages, pages.k, batch, head, key).at, pages.k.stride[2], kCols, features, panel,
                  kCols);
        continue;
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      const PageRow<T> row = page_row<T>(pages, pages.k, batch, head, key + r);
      load_row(row.at, 1, features, row.scale, staging + r * features);
    }
    for (int64_t i = rows * features; i < kCols * features; ++i) staging[i] = 0.0F;
    transpose(staging, features, kCols, features, panel, kCols);
  }
}

template <class T>
HWY_INLINE void pack_page_values(const Pages& pages, int64_t batch, int64_t head, int64_t begin, int64_t end,
                                 int64_t features, int64_t key_stride, float* HWY_RESTRICT to,
                                 uint64_t* HWY_RESTRICT nonfinite) {
  for (int64_t word = begin / 64; word * 64 < end; ++word) nonfinite[word] = 0;
  for (int64_t key = begin; key < end; ++key) {
    const PageRow<T> row = page_row<T>(pages, pages.v, batch, head, key);
    if (HWY_LIKELY(pack_row(row.at, 1, features, row.scale, key_stride, key, to))) continue;
    nonfinite[key / 64] |= uint64_t{1} << (key % 64);
    clear_nonfinite(features, key_stride, key, to);
  }
}

// Keys [begin, end), a piece of [0, Lk), and their values if they are wanted: what the entry has of them.
// begin is a multiple of 64. Panels without a key of the entry are not written, their flags are.
template <class T>
void pack_pages(const Forward& p, int64_t batch, int64_t head, int64_t begin, int64_t end,
                float* HWY_RESTRICT staging, float* HWY_RESTRICT keys, float* HWY_RESTRICT values,
                int64_t key_stride, uint64_t* HWY_RESTRICT nonfinite) {
  const Pages& pages = p.pages;
  for (int64_t word = begin / 64; word * 64 < end; ++word) nonfinite[word] = 0;
  const int64_t last = HWY_MIN(end, pages.end(batch));
  begin = HWY_MAX(begin, pages.begin(batch) / kCols * kCols);
  if (begin >= last) return;
  pack_page_keys<T>(pages, batch, head, begin, last, p.k.size[3], staging, keys);
  if (p.out) pack_page_values<T>(pages, batch, head, begin, last, p.v.size[3], key_stride, values, nonfinite);
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle guard

#include "regard/kernel/pages.h"

#include <sstream>
#include <stdexcept>

#include "regard/kernel/forward.h"
#include "regard/kernel/rows.h"

namespace regard::kernel {
namespace {

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream out;
  out << "pages: ";
  (out << ... << parts);
  throw std::invalid_argument(out.str());
}

void check_pool(const char* what, const PagePool& pool, const Pages& pages, int64_t heads, int64_t features) {
  const Extents& size = pool.size;
  if (size[0] != pages.k.size[0] || size[1] != heads || size[2] != pages.page_size() || size[3] != features)
    fail("the pool of ", what, " has sizes [", size[0], ", ", size[1], ", ", size[2], ", ", size[3],
         "]; allowed: [", pages.k.size[0], ", ", heads, ", ", pages.page_size(), ", ", features, "]");
  if (pool.data == nullptr) fail("the pool of ", what, " has no data");
  if (pool.stride[3] != 1)
    fail("the pool of ", what, " has a feature stride of ", pool.stride[3], "; allowed: 1");
  if (pages.type == CacheType::i8 && !pool.scales)
    fail("the pool of ", what, " is i8 but has no scales; allowed: [pages, Hkv, page_size, 1]");
}

}  // namespace

const char* name(CacheType type) {
  switch (type) {
    case CacheType::f32:
      return "f32";
    case CacheType::bf16:
      return "bf16";
    case CacheType::f16:
      return "f16";
    case CacheType::i8:
      return "i8";
  }
  return "unknown";
}

int64_t bytes(CacheType type) {
  switch (type) {
    case CacheType::f32:
      return 4;
    case CacheType::bf16:
    case CacheType::f16:
      return 2;
    case CacheType::i8:
      return 1;
  }
  return 0;
}

int64_t first_key(const Forward& p, int64_t batch) {
  return p.pages ? p.pages.begin(batch) : 0;
}

int64_t end_key(const Forward& p, int64_t batch) {
  return p.pages ? p.pages.end(batch) : p.k.size[2];
}

float value_element(const Forward& p, int64_t batch, int64_t kv_head, int64_t key, int64_t feature) {
  if (!p.pages) return element(p.v, batch, kv_head, key, feature);
  const PagePool& pool = p.pages.v;
  const int64_t page = p.pages.page(batch, key);
  const int64_t row = key % p.pages.page_size();
  const int64_t at = pool.offset(page, kv_head, row) + feature;
  switch (p.pages.type) {
    case CacheType::f32:
      return static_cast<const float*>(pool.data)[at];
    case CacheType::bf16:
      return to_float(static_cast<const bf16*>(pool.data)[at]);
    case CacheType::f16:
      return to_float(static_cast<const f16*>(pool.data)[at]);
    case CacheType::i8:
      return static_cast<float>(static_cast<const int8_t*>(pool.data)[at]) *
             pool.scales(page, kv_head, row, 0);
  }
  return 0.0F;
}

void check_pages(const Forward& p) {
  const Pages& pages = p.pages;
  const int64_t size = pages.page_size();
  if (size <= 0 || size % kPageUnit != 0)
    fail("the page size is ", size, "; allowed: a multiple of ", kPageUnit);
  check_pool("k", pages.k, pages, p.k.size[1], p.q.size[3]);
  check_pool("v", pages.v, pages, p.k.size[1], p.v.size[3]);
  if ((pages.table32 == nullptr) == (pages.table64 == nullptr))
    fail("there must be one page table, of int32 or int64");
  if (pages.lengths == nullptr) fail("there are no lengths; allowed: [B]");
  for (int64_t b = 0; b < p.q.size[0]; ++b) {
    const int64_t begin = pages.begin(b);
    const int64_t end = pages.end(b);
    if (begin < 0 || end < begin || end > p.k.size[2])
      fail("entry ", b, " has positions [", begin, ", ", end, "); allowed: within [0, ", p.k.size[2], ")");
    if (begin == end) continue;
    if (pages.first != nullptr && pages.first[b] < 0) fail("first[", b, "] is ", pages.first[b]);
    const int64_t held = (end - 1) / size - begin / size + 1;
    if (held > pages.table_size) fail("entry ", b, " has ", held, " pages; its table has ", pages.table_size);
    for (int64_t at = begin / size * size; at < end; at += size) {
      const int64_t page = pages.page(b, at);
      if (page < 0 || page >= pages.k.size[0])
        fail("position ", at, " of entry ", b, " is in page ", page, "; the pool has ", pages.k.size[0]);
    }
  }
}

}  // namespace regard::kernel

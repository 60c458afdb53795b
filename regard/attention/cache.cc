#include "regard/attention/cache.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <sstream>

#include "regard/attention/lower.h"
#include "regard/kernel/kv_rows.h"

namespace regard::attention {
namespace {

using kernel::CacheType;
using kernel::Extents;

constexpr std::align_val_t kAlignment{64};

// Origins of windowed sequences are multiples of it: the kernels' parts of keys stay where they were.
constexpr int64_t kOriginUnit = 512;

template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  out << "KvCache: ";
  (out << ... << parts);
  return out.str();
}

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw std::invalid_argument(text(parts...));
}

std::string sizes(const Extents& size) {
  std::ostringstream out;
  out << '[' << size[0] << ", " << size[1] << ", " << size[2] << ", " << size[3] << ']';
  return out.str();
}

}  // namespace

void KvCache::Release::operator()(std::byte* bytes) const {
  ::operator delete(bytes, kAlignment);
}

KvCache::KvCache(const Shape& shape) : shape_(shape) {
  if (shape.kv_heads < 1 || shape.key_size < 1 || shape.value_size < 1 || shape.pages < 1)
    fail("kv_heads, key_size, value_size and pages are ", shape.kv_heads, ", ", shape.key_size, ", ",
         shape.value_size, " and ", shape.pages, "; allowed: 1 or more");
  if (shape.page_size < 1 || shape.page_size % kernel::kPageUnit != 0)
    fail("page_size is ", shape.page_size, "; allowed: a multiple of ", kernel::kPageUnit);
  if (shape.window < 0) fail("window is ", shape.window, "; allowed: 1 or more, or 0 for none");
  if (shape.values_in_keys && shape.value_size > shape.key_size)
    fail("value_size is ", shape.value_size, "; allowed within keys: up to key_size = ", shape.key_size);
  element_count("the cache",
                {shape.pages, shape.kv_heads, shape.page_size, std::max(shape.key_size, shape.value_size)});
  keys_ = make_store(shape.key_size);
  if (!shape.values_in_keys) values_ = make_store(shape.value_size);
  references_.assign(static_cast<size_t>(shape.pages), 0);
  free_.resize(static_cast<size_t>(shape.pages));
  std::iota(free_.rbegin(), free_.rend(), int64_t{0});
}

KvCache::Store KvCache::make_store(int64_t features) const {
  const auto allocate = [](int64_t bytes) {
    return std::unique_ptr<std::byte, Release>(
        static_cast<std::byte*>(::operator new(static_cast<size_t>(bytes), kAlignment)));
  };
  const int64_t rows = shape_.pages * shape_.kv_heads * shape_.page_size;
  Store store;
  store.features = features;
  store.numbers = allocate(rows * features * kernel::bytes(shape_.type));
  if (shape_.type == CacheType::i8) store.scales = allocate(rows * int64_t{sizeof(float)});
  return store;
}

size_t KvCache::bytes() const {
  int64_t row = 0;
  for (const Store* store : {&keys_, &values_}) {
    row += store->features * kernel::bytes(shape_.type);
    if (store->scales) row += int64_t{sizeof(float)};
  }
  return static_cast<size_t>(shape_.pages * shape_.kv_heads * shape_.page_size * row);
}

const KvCache::Sequence& KvCache::find(int64_t sequence) const {
  const auto found = sequences_.find(sequence);
  if (found == sequences_.end()) fail("there is no sequence ", sequence);
  return found->second;
}

KvCache::Sequence& KvCache::find(int64_t sequence) {
  return const_cast<Sequence&>(static_cast<const KvCache*>(this)->find(sequence));
}

int64_t KvCache::create() {
  sequences_.emplace(next_sequence_, Sequence{});
  return next_sequence_++;
}

int64_t KvCache::fork(int64_t sequence, int64_t length) {
  const Sequence& from = find(sequence);
  if (length == -1) length = from.length;
  check_cut(from, length);
  Sequence copy = from;
  for (const int64_t page : copy.pages) ++references_[static_cast<size_t>(page)];
  cut(copy, length);
  sequences_.emplace(next_sequence_, std::move(copy));
  return next_sequence_++;
}

void KvCache::release(int64_t sequence) {
  cut(find(sequence), 0);
  sequences_.erase(sequence);
}

void KvCache::truncate(int64_t sequence, int64_t length) {
  Sequence& found = find(sequence);
  check_cut(found, length);
  cut(found, length);
}

void KvCache::check_cut(const Sequence& sequence, int64_t length) const {
  if (length < 0 || length > sequence.length)
    fail("a sequence of ", sequence.length, " positions cannot be cut to ", length);
  if (length > 0 && sequence.start > 0 && sequence.start > length - shape_.window + 1)
    fail("a sequence that holds positions from ", sequence.start, " on cannot be cut to ", length,
         ": the window of ", shape_.window, " has dropped what the next row would see");
}

void KvCache::cut(Sequence& sequence, int64_t length) {
  const int64_t before = sequence.start / shape_.page_size;
  const int64_t kept =
      length == 0 ? 0 : std::max<int64_t>((length + shape_.page_size - 1) / shape_.page_size - before, 0);
  while (static_cast<int64_t>(sequence.pages.size()) > kept) {
    drop(sequence.pages.back());
    sequence.pages.pop_back();
  }
  sequence.length = length;
  if (length == 0) sequence.start = 0;
}

void KvCache::drop(int64_t page) {
  if (--references_[static_cast<size_t>(page)] == 0) free_.push_back(page);
}

int64_t KvCache::take_page() {
  const int64_t page = free_.back();
  free_.pop_back();
  references_[static_cast<size_t>(page)] = 1;
  return page;
}

void KvCache::copy_page(int64_t from, int64_t to) {
  const auto rows = static_cast<size_t>(shape_.kv_heads * shape_.page_size);
  for (Store* store : {&keys_, &values_}) {
    const size_t bytes = rows * static_cast<size_t>(store->features * kernel::bytes(shape_.type));
    if (bytes == 0) continue;
    std::byte* numbers = store->numbers.get();
    std::memcpy(numbers + static_cast<size_t>(to) * bytes, numbers + static_cast<size_t>(from) * bytes,
                bytes);
    if (!store->scales) continue;
    std::byte* scales = store->scales.get();
    const size_t scale_bytes = rows * sizeof(float);
    std::memcpy(scales + static_cast<size_t>(to) * scale_bytes,
                scales + static_cast<size_t>(from) * scale_bytes, scale_bytes);
  }
}

// The first position that a row at the sequence's end sees.
int64_t KvCache::start_after(const Sequence& sequence) const {
  if (shape_.window == 0) return sequence.start;
  return std::max(sequence.start, sequence.length - shape_.window + 1);
}

void KvCache::check_append(std::span<const int64_t> sequences, const ConstAnyView& k,
                           const ConstAnyView& v) const {
  const auto batch = static_cast<int64_t>(sequences.size());
  const Extents key_size{batch, shape_.kv_heads, k.size[2], shape_.key_size};
  if (k.size != key_size || k.size[2] < 0)
    fail("k has sizes ", sizes(k.size), "; allowed: [B, Hkv, L, Dk] = ", sizes(key_size));
  const Extents value_size{batch, shape_.kv_heads, k.size[2], shape_.value_size};
  if (shape_.values_in_keys) {
    if (v) fail("v is given; allowed: none, values lie in keys");
  } else if (v.size != value_size) {
    fail("v has sizes ", sizes(v.size), "; allowed: [B, Hkv, L, Dv] = ", sizes(value_size));
  }
  if (batch * k.size[2] > 0 && (!k || (!shape_.values_in_keys && !v)))
    fail(k ? "v" : "k", " has no data; allowed: a pointer");
  for (size_t b = 0; b < sequences.size(); ++b) {
    const Sequence& sequence = find(sequences[b]);
    if (std::find(sequences.begin(), sequences.begin() + static_cast<int64_t>(b), sequences[b]) !=
        sequences.begin() + static_cast<int64_t>(b))
      fail("sequence ", sequences[b], " is given twice; allowed: different ones");
    if (k.size[2] > (int64_t{1} << 60) - sequence.length) fail("sequence ", sequences[b], " is too long");
  }
}

// Counts as append() will act: first every sequence drops what its window has passed, then each takes pages.
void KvCache::check_room(std::span<const int64_t> sequences, int64_t added) const {
  std::unordered_map<int64_t, int32_t> references;  // of pages that are dropped or copied
  const auto count = [&](int64_t page) -> int32_t& {
    return references.try_emplace(page, references_[static_cast<size_t>(page)]).first->second;
  };
  const int64_t size = shape_.page_size;
  int64_t room = free_pages();
  int64_t needed = 0;
  for (const int64_t name : sequences) {
    const Sequence& sequence = find(name);
    const int64_t passed = start_after(sequence) / size - sequence.start / size;
    for (int64_t i = 0; i < std::min<int64_t>(passed, static_cast<int64_t>(sequence.pages.size())); ++i)
      if (--count(sequence.pages[static_cast<size_t>(i)]) == 0) ++room;
  }
  for (const int64_t name : sequences) {
    const Sequence& sequence = find(name);
    needed += (sequence.length + added + size - 1) / size - (sequence.length + size - 1) / size;
    if (sequence.length % size == 0 || added == 0) continue;
    int32_t& shared = count(sequence.pages.back());
    if (shared > 1) {
      --shared;
      ++needed;
    }
  }
  if (needed > room)
    throw CacheFull(text(needed, " pages are needed and ", room, " of ", shape_.pages, " are free"));
}

void KvCache::append(std::span<const int64_t> sequences, const ConstAnyView& k, const ConstAnyView& v) {
  check_append(sequences, k, v);
  const int64_t added = k.size[2];
  if (added == 0) return;
  check_room(sequences, added);
  const int64_t size = shape_.page_size;
  for (const int64_t name : sequences) {
    Sequence& sequence = find(name);
    const int64_t start = start_after(sequence);
    const int64_t passed =
        std::min<int64_t>(start / size - sequence.start / size, static_cast<int64_t>(sequence.pages.size()));
    for (int64_t i = 0; i < passed; ++i) drop(sequence.pages[static_cast<size_t>(i)]);
    sequence.pages.erase(sequence.pages.begin(), sequence.pages.begin() + passed);
    sequence.start = start;
  }
  std::vector<float> numbers(static_cast<size_t>(std::max(shape_.key_size, shape_.value_size)));
  for (size_t b = 0; b < sequences.size(); ++b) {
    Sequence& sequence = find(sequences[b]);
    if (sequence.length % size != 0 && references_[static_cast<size_t>(sequence.pages.back())] > 1) {
      const int64_t own = take_page();
      copy_page(sequence.pages.back(), own);
      drop(sequence.pages.back());
      sequence.pages.back() = own;
    }
    for (int64_t i = 0; i < added; ++i) {
      const int64_t at = sequence.length + i;
      if (at % size == 0) sequence.pages.push_back(take_page());
      for (int64_t h = 0; h < shape_.kv_heads; ++h) {
        const int64_t row = row_index(sequence.pages.back(), h, at % size);
        kernel::widen_row(k, static_cast<int64_t>(b), h, i, numbers.data());
        write_row(keys_, row, numbers.data());
        if (shape_.values_in_keys) continue;
        kernel::widen_row(v, static_cast<int64_t>(b), h, i, numbers.data());
        write_row(values_, row, numbers.data());
      }
    }
    sequence.length += added;
  }
}

int64_t KvCache::row_index(int64_t page, int64_t head, int64_t at) const {
  return (page * shape_.kv_heads + head) * shape_.page_size + at;
}

void KvCache::write_row(Store& store, int64_t row, const float* numbers) {
  std::byte* to = store.numbers.get() + row * store.features * kernel::bytes(shape_.type);
  const float scale = kernel::store_row(shape_.type, numbers, store.features, to);
  if (store.scales) reinterpret_cast<float*>(store.scales.get())[row] = scale;
}

void KvCache::read(int64_t sequence, int64_t head, int64_t position, float* key, float* value) const {
  const Sequence& found = find(sequence);
  if (position < found.start || position >= found.length)
    fail("sequence ", sequence, " has no position ", position, "; it holds [", found.start, ", ",
         found.length, ")");
  if (head < 0 || head >= shape_.kv_heads)
    fail("there is no head ", head, "; allowed: below ", shape_.kv_heads);
  const int64_t at = position / shape_.page_size - found.start / shape_.page_size;
  const int64_t row = row_index(found.pages[static_cast<size_t>(at)], head, position % shape_.page_size);
  if (key != nullptr) read_row(keys_, shape_.key_size, row, key);
  if (value != nullptr) read_row(shape_.values_in_keys ? keys_ : values_, shape_.value_size, row, value);
}

void KvCache::read_row(const Store& store, int64_t features, int64_t row, float* to) const {
  const std::byte* from = store.numbers.get() + row * store.features * kernel::bytes(shape_.type);
  const float scale = store.scales ? reinterpret_cast<const float*>(store.scales.get())[row] : 1.0F;
  kernel::load_row(shape_.type, from, scale, features, to);
}

kernel::PagePool KvCache::pool(const Store& store, int64_t features) const {
  kernel::PagePool pool;
  pool.data = store.numbers.get();
  pool.size = {shape_.pages, shape_.kv_heads, shape_.page_size, features};
  pool.stride = kernel::contiguous_strides({shape_.pages, shape_.kv_heads, shape_.page_size, store.features});
  if (store.scales)
    pool.scales = View<const float>(reinterpret_cast<const float*>(store.scales.get()),
                                    {shape_.pages, shape_.kv_heads, shape_.page_size, 1});
  return pool;
}

KvCache::Batch KvCache::batch(std::span<const int64_t> sequences, bool whole) const {
  const int64_t size = shape_.page_size;
  const int64_t unit = std::lcm(kOriginUnit, size);
  Batch batch;
  int64_t longest = 1;
  for (const int64_t name : sequences)
    longest = std::max(longest, static_cast<int64_t>(find(name).pages.size()));
  batch.table.assign(sequences.size() * static_cast<size_t>(longest), 0);
  for (size_t b = 0; b < sequences.size(); ++b) {
    const Sequence& sequence = find(sequences[b]);
    std::copy(sequence.pages.begin(), sequence.pages.end(),
              batch.table.begin() + static_cast<int64_t>(b) * longest);
    const int64_t origin = whole ? 0 : sequence.start / unit * unit;
    const int64_t before = (sequence.start - origin) / size % longest;  // pages between origin and table[0]
    batch.first.push_back((longest - before) % longest);
    batch.starts.push_back(sequence.start - origin);
    batch.lengths.push_back(sequence.length - origin);
    batch.origins.push_back(origin);
    batch.keys = std::max(batch.keys, sequence.length - origin);
  }
  kernel::Pages& pages = batch.pages;
  pages.type = shape_.type;
  pages.k = pool(keys_, shape_.key_size);
  pages.v = pool(shape_.values_in_keys ? keys_ : values_, shape_.value_size);
  pages.table64 = batch.table.data();
  pages.table_size = pages.table_stride = longest;
  pages.first = batch.first.data();
  pages.starts = batch.starts.data();
  pages.lengths = batch.lengths.data();
  return batch;
}

}  // namespace regard::attention

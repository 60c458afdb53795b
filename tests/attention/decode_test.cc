#include "regard/attention/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "regard/attention/attention.h"
#include "regard/attention/reference.h"
#include "tests/attention/problem.h"
#include "tests/attention/target_test.h"
#include "tests/support/compare.h"

namespace regard::attention {
namespace {

using kernel::CacheType;
using kernel::DType;
using kernel::Extents;
using regard::testing::float32_bound;
using regard::testing::is_close;
using regard::testing::largest_finite;
using regard::testing::Tensor;
using ::testing::HasSubstr;

constexpr int64_t kHeads = 4, kKvHeads = 2, kDk = 24, kDv = 20;

KvCache::Shape shape_of(CacheType type, int64_t page_size = 16, int64_t window = 0) {
  KvCache::Shape shape;
  shape.kv_heads = kKvHeads;
  shape.key_size = kDk;
  shape.value_size = kDv;
  shape.pages = 300;
  shape.page_size = page_size;
  shape.type = type;
  shape.window = window;
  return shape;
}

Tensor normal(const Extents& size, uint64_t seed, DType dtype = DType::f32) {
  Tensor tensor(dtype, size);
  std::mt19937_64 random(seed);
  tensor.fill_normal(random);
  return tensor;
}

// Rows [begin, end) of the text with this seed: the same row whatever is asked with it.
Tensor text(int64_t begin, int64_t end, int64_t features, uint64_t seed) {
  Tensor rows(DType::f32, {1, kKvHeads, end - begin, features});
  for (int64_t p = begin; p < end; ++p) {
    const Tensor row = normal({1, kKvHeads, 1, features}, seed * 1000003 + static_cast<uint64_t>(p));
    for (int64_t h = 0; h < kKvHeads; ++h)
      for (int64_t f = 0; f < features; ++f) rows.set(0, h, p - begin, f, row.get(0, h, 0, f));
  }
  return rows;
}

void append(KvCache& cache, int64_t sequence, int64_t count, uint64_t seed) {
  const int64_t at = cache.length(sequence);
  Tensor k = text(at, at + count, kDk, seed);
  Tensor v = text(at, at + count, kDv, seed + 1);
  cache.append(std::vector<int64_t>{sequence}, k.view(), v.view());
}

struct Result {
  Tensor out, lse;
};

Result run(const Spec& spec, const Tensor& q, const KvCache& cache, const std::vector<int64_t>& sequences,
           int threads = 1) {
  const Extents& size = q.size();
  Result result{Tensor(DType::f32, {size[0], size[1], size[2], cache.shape().value_size}),
                Tensor(DType::f32, {size[0], size[1], size[2], 1})};
  Operands operands;
  operands.q = q.view();
  operands.out = result.out.view();
  operands.lse = result.lse.as<float>();
  kernel::ThreadPool pool(threads);
  decode(spec, operands, cache, sequences, pool);
  return result;
}

// What one sequence holds, in a row; positions that its window has dropped are 0.
struct Held {
  Tensor k, v;
  Held(const KvCache& cache, int64_t sequence)
      : k(DType::f32, {1, kKvHeads, cache.length(sequence), kDk}),
        v(DType::f32, {1, kKvHeads, cache.length(sequence), kDv}) {
    k.fill(0);
    v.fill(0);
    std::vector<float> key(kDk), value(kDv);
    for (int64_t h = 0; h < kKvHeads; ++h) {
      for (int64_t p = cache.start(sequence); p < cache.length(sequence); ++p) {
        cache.read(sequence, h, p, key.data(), value.data());
        for (int64_t f = 0; f < kDk; ++f) k.set(0, h, p, f, key[f]);
        for (int64_t f = 0; f < kDv; ++f) v.set(0, h, p, f, value[f]);
      }
    }
  }
};

Tensor entry_of(const Tensor& q, int64_t b) {
  const Extents& size = q.size();
  Tensor one(DType::f32, {1, size[1], size[2], size[3]});
  for (int64_t h = 0; h < size[1]; ++h)
    for (int64_t i = 0; i < size[2]; ++i)
      for (int64_t f = 0; f < size[3]; ++f) one.set(0, h, i, f, q.get(b, h, i, f));
  return one;
}

Spec flat_spec(Spec spec, const KvCache& cache) {
  spec.mask = spec.mask & Mask::causal(Align::bottom_right);
  if (cache.shape().window > 0)
    spec.mask = spec.mask & Mask::window(cache.shape().window - 1, -1, Align::bottom_right);
  return spec;
}

void expect_right(const Result& got, const Spec& spec, const Tensor& q, const KvCache& cache,
                  const std::vector<int64_t>& sequences) {
  for (size_t b = 0; b < sequences.size(); ++b) {
    SCOPED_TRACE("entry " + std::to_string(b) + " of " + std::to_string(cache.length(sequences[b])) +
                 " positions");
    const Held held(cache, sequences[b]);
    const Tensor one = entry_of(q, static_cast<int64_t>(b));
    Operands operands;
    operands.q = one.view();
    operands.k = held.k.view();
    operands.v = held.v.view();
    const Reference want = reference(flat_spec(spec, cache), operands);
    const auto bound = float32_bound(largest_finite(want.logits));
    EXPECT_TRUE(is_close(entry_of(got.out, static_cast<int64_t>(b)).values(), want.out, bound));
    EXPECT_TRUE(is_close(entry_of(got.lse, static_cast<int64_t>(b)).values(), want.lse, bound, 1.0));
  }
}

class Decode : public regard::testing::EachTarget {};

TEST_P(Decode, EveryTypeEqualsTheReferenceOnWhatIsStored) {
  for (const CacheType type : {CacheType::f32, CacheType::bf16, CacheType::f16, CacheType::i8}) {
    for (const int64_t rows : {1, 3, 20}) {
      for (const int64_t page_size : {16, 48}) {
        SCOPED_TRACE(std::string(kernel::name(type)) + ", rows " + std::to_string(rows));
        KvCache cache(shape_of(type, page_size));
        std::vector<int64_t> sequences;
        for (const int64_t length : {16, 0, 17, 130, 600, 1}) {
          sequences.push_back(cache.create());
          append(cache, sequences.back(), length, static_cast<uint64_t>(length));
        }
        const Tensor q = normal({6, kHeads, rows, kDk}, 5);
        Spec spec;
        spec.softcap = rows == 3 ? 4.0F : 0.0F;
        const Result got = run(spec, q, cache, sequences);
        expect_right(got, spec, q, cache, sequences);
        for (int64_t f = 0; f < kDv; ++f) EXPECT_EQ(got.out.get(1, 0, 0, f), 0.0F);
        EXPECT_EQ(got.lse.get(1, 0, 0, 0), -std::numeric_limits<float>::infinity());
      }
    }
  }
}

TEST_P(Decode, QueriesOfSixteenBitsMeetCachesOfAnyType) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const CacheType type : {CacheType::f32, CacheType::bf16, CacheType::f16, CacheType::i8}) {
      for (const int64_t rows : {1, 20}) {
        SCOPED_TRACE(std::string(kernel::name(dtype)) + " over " + kernel::name(type));
        KvCache cache(shape_of(type));
        const int64_t sequence = cache.create();
        append(cache, sequence, 90, 1);
        const Tensor q = normal({1, kHeads, rows, kDk}, 5, dtype);
        expect_right(run({}, q, cache, {sequence}), {}, q, cache, {sequence});
      }
    }
  }
}

TEST_P(Decode, BitsAreThoseOfContiguousKeys) {
  for (const int64_t rows : {1, 2, 30}) {
    for (const int64_t length : {30, 64, 65, 700}) {
      KvCache cache(shape_of(CacheType::f32, 32));
      const int64_t sequence = cache.create();
      append(cache, sequence, length, 3);
      const Tensor q = normal({1, kHeads, rows, kDk}, 5);
      const Result got = run({}, q, cache, {sequence});
      const Held held(cache, sequence);
      const attention::Result want = attention(q.view(), held.k.view(), held.v.view(), flat_spec({}, cache));
      EXPECT_EQ(got.out.values(), want.out);
      EXPECT_EQ(got.lse.values(), want.lse);
    }
  }
}

TEST_P(Decode, SharedPrefixesThatDivergeEqualSeparateCaches) {
  KvCache shared(shape_of(CacheType::bf16));
  KvCache apart(shape_of(CacheType::bf16));
  const int64_t a = shared.create();
  const int64_t c = apart.create(), d = apart.create();
  append(shared, a, 57, 1);
  append(apart, c, 57, 1);
  append(apart, d, 57, 1);
  const int64_t b = shared.fork(a);
  for (int step = 0; step < 20; ++step) {
    append(shared, a, 1, 2);
    append(shared, b, 1, 3);
    append(apart, c, 1, 2);
    append(apart, d, 1, 3);
    const Tensor q = normal({2, kHeads, 1, kDk}, static_cast<uint64_t>(step));
    EXPECT_EQ(run({}, q, shared, {a, b}).out.values(), run({}, q, apart, {c, d}).out.values());
  }
  EXPECT_LT(shared.shape().pages - shared.free_pages(), apart.shape().pages - apart.free_pages());
}

TEST_P(Decode, ARingEqualsTheFullCacheWithAWindow) {
  for (const int64_t window : {1, 16, 60}) {
    for (const int64_t page_size : {16, 48}) {
      SCOPED_TRACE(std::to_string(window) + " keys, pages of " + std::to_string(page_size));
      KvCache ring(shape_of(CacheType::f32, page_size, window));
      KvCache full(shape_of(CacheType::f32, page_size));
      const int64_t a = ring.create(), b = full.create();
      Spec spec;
      spec.mask = Mask::window(window - 1, 0, Align::bottom_right);
      for (int64_t step = 0; full.length(b) < 1300; ++step) {
        const int64_t rows = step % 7 == 6 ? 40 : 1 + step % 3;  // 40: by packed keys
        append(ring, a, rows, 1);
        append(full, b, rows, 1);
        const Tensor q = normal({1, kHeads, rows, kDk}, static_cast<uint64_t>(step));
        const Result got = run({}, q, ring, {a});
        const Result want = run(spec, q, full, {b});
        if (rows < 40) {
          ASSERT_EQ(got.out.values(), want.out.values()) << "at " << full.length(b);
          ASSERT_EQ(got.lse.values(), want.lse.values());
        }
        if (step % 10 == 0 || rows == 40) expect_right(got, {}, q, ring, {a});
      }
      EXPECT_LE(ring.shape().pages - ring.free_pages(), (window + 40) / page_size + 2);
    }
  }
}

TEST_P(Decode, ALongSequenceInARingNeedsNoMoreScratchThanAShortOne) {
  KvCache ring(shape_of(CacheType::i8, 16, 32));
  const int64_t a = ring.create();
  for (int i = 0; i < 40; ++i) append(ring, a, 100, 1);
  const KvCache::Batch batch = ring.batch(std::vector<int64_t>{a});
  EXPECT_LE(batch.keys, 512 + 132);
  EXPECT_EQ(batch.origins[0] + batch.lengths[0], 4000);
}

TEST_P(Decode, AlibiMeasuresFromEachEntrysOwnEnd) {
  for (const int64_t window : {0, 50}) {
    KvCache cache(shape_of(CacheType::f32, 16, window));
    const std::vector<int64_t> sequences{cache.create(), cache.create()};
    append(cache, sequences[0], 33, 1);
    for (int i = 0; i < 30; ++i) append(cache, sequences[1], 30, 2);
    const Tensor q = normal({2, kHeads, 2, kDk}, 3);
    Tensor slopes(DType::f32, {1, kHeads, 1, 1});
    slopes.fill(0.05F);
    Tensor sinks(DType::f32, {1, kHeads, 1, 1});
    sinks.fill(0.7F);
    Tensor out(DType::f32, {2, kHeads, 2, kDv});
    Operands operands;
    operands.q = q.view();
    operands.out = out.view();
    operands.slopes = slopes.as<const float>();
    operands.sinks = sinks.as<const float>();
    decode({}, operands, cache, sequences);
    for (int64_t b = 0; b < 2; ++b) {
      const Held held(cache, sequences[b]);
      const Tensor one = entry_of(q, b);
      Operands flat = operands;
      flat.q = one.view();
      flat.k = held.k.view();
      flat.v = held.v.view();
      const Reference want = reference(flat_spec({}, cache), flat);
      EXPECT_TRUE(is_close(entry_of(out, b).values(), want.out, float32_bound(largest_finite(want.logits))));
    }
  }
}

TEST_P(Decode, APromptInAnyChunksEqualsOnePrefill) {
  constexpr int64_t kLength = 150;
  for (const CacheType type : {CacheType::f32, CacheType::i8}) {
    KvCache cache(shape_of(type));
    const int64_t whole = cache.create();
    append(cache, whole, kLength, 1);
    const Tensor q = normal({1, kHeads, kLength, kDk}, 2);
    const Result want = run({}, q, cache, {whole});
    expect_right(want, {}, q, cache, {whole});
    for (const int64_t chunk : {1, 7, 16, 64, 149}) {
      const int64_t sequence = cache.create();
      Tensor out(DType::f32, {1, kHeads, kLength, kDv});
      for (int64_t at = 0; at < kLength; at += chunk) {
        const int64_t rows = std::min(chunk, kLength - at);
        append(cache, sequence, rows, 1);
        Tensor part(DType::f32, {1, kHeads, rows, kDk});
        for (int64_t h = 0; h < kHeads; ++h)
          for (int64_t i = 0; i < rows; ++i)
            for (int64_t f = 0; f < kDk; ++f) part.set(0, h, i, f, q.get(0, h, at + i, f));
        const Result got = run({}, part, cache, {sequence});
        for (int64_t h = 0; h < kHeads; ++h)
          for (int64_t i = 0; i < rows; ++i)
            for (int64_t f = 0; f < kDv; ++f) out.set(0, h, at + i, f, got.out.get(0, h, i, f));
      }
      const std::vector<float> once = want.out.values();
      const std::vector<double> expected(once.begin(), once.end());
      EXPECT_TRUE(is_close(out.values(), expected, {4e-6, 1.6e-5})) << "chunks of " << chunk;
      cache.release(sequence);
    }
  }
}

TEST_P(Decode, RowsThatMustBeInvariantAreThoseOfOnePrefillBitForBit) {
  constexpr int64_t kLength = 70;
  KvCache cache(shape_of(CacheType::bf16));
  const int64_t whole = cache.create();
  append(cache, whole, kLength, 1);
  const Tensor q = normal({1, kHeads, kLength, kDk}, 2);
  Spec spec;
  spec.row_invariant = true;
  const Result want = run(spec, q, cache, {whole});
  const int64_t sequence = cache.create();
  for (int64_t at = 0; at < kLength; ++at) {
    append(cache, sequence, 1, 1);
    Tensor row(DType::f32, {1, kHeads, 1, kDk});
    for (int64_t h = 0; h < kHeads; ++h)
      for (int64_t f = 0; f < kDk; ++f) row.set(0, h, 0, f, q.get(0, h, at, f));
    const Result got = run(spec, row, cache, {sequence});
    for (int64_t h = 0; h < kHeads; ++h)
      for (int64_t f = 0; f < kDv; ++f) ASSERT_EQ(got.out.get(0, h, 0, f), want.out.get(0, h, at, f)) << at;
  }
}

TEST_P(Decode, WhatFreedPagesHeldIsNeverSeen) {
  for (const CacheType type : {CacheType::f32, CacheType::f16, CacheType::i8}) {
    for (const int64_t window : {0, 20}) {
      KvCache::Shape shape = shape_of(type, 16, window);
      shape.pages = 12;
      KvCache cache(shape);
      const int64_t poison = cache.create();
      Tensor k(DType::f32, {1, kKvHeads, 192, kDk}), v(DType::f32, {1, kKvHeads, 192, kDv});
      k.fill(std::numeric_limits<float>::quiet_NaN());
      v.fill(std::numeric_limits<float>::infinity());
      cache.append(std::vector<int64_t>{poison}, k.view(), v.view());
      cache.release(poison);
      const std::vector<int64_t> sequences{cache.create(), cache.create()};
      append(cache, sequences[0], 37, 1);
      append(cache, sequences[1], 50, 2);
      append(cache, sequences[1], 3, 2);
      for (const int64_t rows : {1, 30}) {
        if (window > 0 && rows == 30) continue;  // only the appended rows may ask
        const Tensor q = normal({2, kHeads, rows, kDk}, 5);
        expect_right(run({}, q, cache, sequences), {}, q, cache, sequences);
      }
    }
  }
}

TEST_P(Decode, BitsDoNotDependOnTheNumberOfThreads) {
  KvCache cache(shape_of(CacheType::i8));
  const std::vector<int64_t> sequences{cache.create(), cache.create(), cache.create()};
  append(cache, sequences[0], 1500, 1);
  append(cache, sequences[2], 70, 1);
  for (const int64_t rows : {1, 40}) {
    const Tensor q = normal({3, kHeads, rows, kDk}, 5);
    const Result want = run({}, q, cache, sequences, 1);
    for (const int threads : {2, 3, 5}) {
      const Result got = run({}, q, cache, sequences, threads);
      EXPECT_EQ(got.out.values(), want.out.values()) << threads;
      EXPECT_EQ(got.lse.values(), want.lse.values()) << threads;
    }
  }
}

// Random forks, appends, cuts and releases; what a sequence holds must be what was said to it.
TEST_P(Decode, AnyHistoryOfForksAndCutsLeavesTheRightText) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto pick = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    const auto type = static_cast<CacheType>(pick(0, 3));
    KvCache::Shape shape = shape_of(type, 16 * pick(1, 3), pick(0, 1) * pick(1, 50));
    shape.pages = 60;
    KvCache cache(shape);
    struct Told {
      int64_t sequence;
      std::vector<uint64_t> words;  // the seed of each position's row
    };
    std::vector<Told> told{{cache.create(), {}}};
    for (int step = 0; step < 60; ++step) {
      Told& one = told[static_cast<size_t>(pick(0, static_cast<int64_t>(told.size()) - 1))];
      switch (pick(0, 5)) {
        case 0:
          if (told.size() < 6) {
            const Told copy{cache.fork(one.sequence), one.words};
            told.push_back(copy);
          }
          break;
        case 1:
          try {
            const auto length = static_cast<size_t>(pick(0, static_cast<int64_t>(one.words.size())));
            cache.truncate(one.sequence, static_cast<int64_t>(length));
            one.words.resize(length);
          } catch (const std::invalid_argument&) {
            EXPECT_GT(shape.window, 0);
          }
          break;
        case 2:
          if (told.size() > 1) {
            cache.release(one.sequence);
            std::swap(one, told.back());
            told.pop_back();
          }
          break;
        default: {
          const int64_t count = pick(1, 40);
          const auto words = static_cast<uint64_t>(pick(0, 1 << 20));
          try {
            append(cache, one.sequence, count, words);
            one.words.resize(one.words.size() + static_cast<size_t>(count), words);
          } catch (const CacheFull&) {
          }
        }
      }
    }
    std::vector<int64_t> sequences;
    for (const Told& one : told) {
      sequences.push_back(one.sequence);
      ASSERT_EQ(cache.length(one.sequence), static_cast<int64_t>(one.words.size()));
      std::vector<float> key(kDk), value(kDv);
      for (int64_t p = cache.start(one.sequence); p < cache.length(one.sequence); ++p) {
        const uint64_t words = one.words[static_cast<size_t>(p)];
        const Tensor said = text(p, p + 1, kDk, words);
        cache.read(one.sequence, 1, p, key.data(), value.data());
        for (int64_t f = 0; f < kDk; ++f) ASSERT_NEAR(key[f], said.get(0, 1, 0, f), 0.02) << "at " << p;
      }
    }
    const Tensor q = normal({static_cast<int64_t>(sequences.size()), kHeads, 1, kDk}, seed);
    expect_right(run({}, q, cache, sequences), {}, q, cache, sequences);
    for (const int64_t sequence : sequences) cache.release(sequence);
    EXPECT_EQ(cache.free_pages(), shape.pages);
  }
}

// Data with an axis of keys of its own, for three sequences of which the longest has `keys` positions.
struct KeyData {
  Tensor bias;
  std::vector<uint8_t> dense, blocks;
  std::vector<int32_t> query_segments, key_segments;
  std::vector<int64_t> lengths;
  int64_t rows, keys, block_count;

  KeyData(int64_t rows, int64_t keys) : bias(DType::f32, {3, kHeads, rows, keys}), rows(rows), keys(keys) {
    std::mt19937_64 random(11);
    bias.fill_normal(random);
    block_count = (keys + 23) / 24;
    dense.resize(3 * kHeads * rows * keys);
    for (uint8_t& x : dense) x = random() % 4 != 0;
    blocks.resize(3 * ((rows + 4) / 5) * block_count);
    for (uint8_t& x : blocks) x = random() % 3 != 0;
    for (int64_t i = 0; i < 3 * rows; ++i) query_segments.push_back(static_cast<int32_t>(random() % 3));
    for (int64_t j = 0; j < 3 * keys; ++j) key_segments.push_back(static_cast<int32_t>(random() % 3));
    lengths = {keys / 3, keys, 5};
  }

  // Sets what the mask needs of entries [b, b + count), for `n` keys.
  void add_to(Operands& operands, const Mask& mask, bool with_bias, int64_t b, int64_t count, int64_t n) {
    const int64_t down = (rows + 4) / 5;
    if (with_bias) {
      operands.bias = bias.as<float>();
      operands.bias.data += b * operands.bias.stride[0];
      operands.bias.size[0] = count;
      operands.bias.size[3] = n;
    }
    if (mask.uses_dense()) {
      operands.dense_mask = {dense.data() + b * kHeads * rows * keys,
                             {count, kHeads, rows, n},
                             {kHeads * rows * keys, rows * keys, keys, 1}};
    }
    if (mask.uses<part::Blocks>()) {
      operands.block_mask = {blocks.data() + b * down * block_count,
                             {count, 1, down, (n + 23) / 24},
                             {down * block_count, 0, block_count, 1}};
    }
    if (mask.uses<part::Segments>()) {
      operands.query_segments = {query_segments.data() + b * rows, {count, 1, 1, rows}, {rows, 0, 0, 1}};
      operands.key_segments = {key_segments.data() + b * keys, {count, 1, 1, n}, {keys, 0, 0, 1}};
    }
    if (mask.uses_key_lengths()) operands.key_lengths = {lengths.data() + b, {count, 1, 1, 1}};
  }
};

// Three sequences of other lengths, a bias or a mask with data, with and without a window.
template <class Test>
void for_each_data_mask(Test&& test) {
  const Mask masks[] = {Mask(), Mask::dense(), Mask::segments(), Mask::blocks(5, 24),
                        Mask::key_lengths() | Mask::prefix(40)};
  for (const int64_t window : {0, 70}) {
    for (const int64_t rows : {1, 20}) {
      for (const Mask& mask : masks) {
        SCOPED_TRACE(mask.to_string() + ", window " + std::to_string(window) + ", rows " +
                     std::to_string(rows));
        KvCache cache(shape_of(CacheType::f16, 16, window));
        std::vector<int64_t> sequences;
        for (const int64_t length : {300, 610, 33}) {
          sequences.push_back(cache.create());
          for (int64_t at = 0; at < length; at += 20)
            append(cache, sequences.back(), std::min<int64_t>(20, length - at), 4);
          cache.truncate(sequences.back(), length - 1);  // its last append can be taken back
          append(cache, sequences.back(), 1, 4);
        }
        test(cache, sequences, mask, rows, KeyData(rows, 610));
      }
    }
  }
}

TEST_P(Decode, ABiasAndDataOfMasksCountFromEachEntrysBeginning) {
  for_each_data_mask([](const KvCache& cache, const std::vector<int64_t>& sequences, const Mask& mask,
                        int64_t rows, KeyData data) {
    const Tensor q = normal({3, kHeads, rows, kDk}, 5);
    Spec spec;
    spec.mask = mask;
    Result got{Tensor(DType::f32, {3, kHeads, rows, kDv}), Tensor(DType::f32, {3, kHeads, rows, 1})};
    Operands operands;
    operands.q = q.view();
    operands.out = got.out.view();
    operands.lse = got.lse.as<float>();
    const bool with_bias = mask.sees_everything();
    data.add_to(operands, mask, with_bias, 0, 3, 610);
    decode(spec, operands, cache, sequences);
    for (int64_t b = 0; b < 3; ++b) {
      const int64_t sequence = sequences[static_cast<size_t>(b)];
      const Held held(cache, sequence);
      const Tensor one = entry_of(q, b);
      Operands flat;
      flat.q = one.view();
      flat.k = held.k.view();
      flat.v = held.v.view();
      data.add_to(flat, mask, with_bias, b, 1, cache.length(sequence));
      if (flat.key_lengths) data.lengths[b] = std::min(data.lengths[b], cache.length(sequence));
      const Reference want = reference(flat_spec(spec, cache), flat);
      const auto bound = float32_bound(largest_finite(want.logits));
      // Rows of a window may reach back beyond what is held: only those that do not are compared.
      const std::vector<float> out = entry_of(got.out, b).values();
      const int64_t first = cache.shape().window == 0 ? 0 : rows - 1;
      for (int64_t h = 0; h < kHeads; ++h) {
        const auto part = [&](const auto& all, int64_t size) {
          return std::vector(all.begin() + (h * rows + first) * size, all.begin() + (h + 1) * rows * size);
        };
        EXPECT_TRUE(is_close(part(out, kDv), part(want.out, kDv), bound, 1.0)) << b;
        EXPECT_TRUE(is_close(part(entry_of(got.lse, b).values(), 1), part(want.lse, 1), bound, 1.0)) << b;
      }
    }
  });
}

TEST_P(Decode, WhatIsObservedAndAnyTileOfWeightsAreThoseOfTheHeldKeys) {
  for_each_data_mask([](const KvCache& cache, const std::vector<int64_t>& sequences, const Mask& mask,
                        int64_t rows, KeyData data) {
    const Tensor q = normal({3, kHeads, rows, kDk}, 5);
    Spec spec;
    spec.mask = mask;
    Tensor out(DType::f32, {3, kHeads, rows, kDv}), lse(DType::f32, {3, kHeads, rows, 1});
    Tensor plain(DType::f32, {3, kHeads, rows, kDv});
    Operands operands;
    operands.q = q.view();
    operands.out = plain.view();
    data.add_to(operands, mask, false, 0, 3, 610);
    decode(spec, operands, cache, sequences);
    operands.out = out.view();
    operands.lse = lse.as<float>();
    const Observe what{.entropy = true,
                       .distance = true,
                       .column_sums = true,
                       .top_k = 3,
                       .block_rows = 7,
                       .block_keys = 100};
    const Observation seen = observe(what, spec, operands, cache, sequences);
    EXPECT_EQ(out.values(), plain.values());  // not a bit changes
    operands.out = {};
    for (int64_t b = 0; b < 3; ++b) {
      const int64_t length = cache.length(sequences[static_cast<size_t>(b)]);
      for (int64_t h = 0; h < kHeads; ++h) {
        const std::vector<float> map =
            weights(spec, operands, cache, sequences, lse.as<float>(), b, h, 0, rows, 0, 610);
        EXPECT_EQ(weights(spec, operands, cache, sequences, lse.as<float>(), b, h, rows - 1, 1, 0, 33),
                  std::vector<float>(map.begin() + (rows - 1) * 610, map.begin() + (rows - 1) * 610 + 33));
        const int64_t head = b * kHeads + h;
        std::vector<double> columns(610);
        for (int64_t i = 0; i < rows; ++i) {
          double sum = 0, entropy = 0, distance = 0, best = 0;
          for (int64_t j = 0; j < 610; ++j) {
            const double p = map[i * 610 + j];
            sum += p;
            columns[j] += p;
            if (p > 0) entropy -= p * std::log(p);
            distance += p * static_cast<double>(std::abs(i + length - rows - j));
            best = std::max(best, p);
            if (j >= length) {
              ASSERT_EQ(p, 0.0);
            }
          }
          const bool empty = !std::isfinite(lse.get(b, h, i, 0));
          ASSERT_NEAR(sum, empty ? 0.0 : 1.0, 1e-5);
          ASSERT_NEAR(seen.entropy[head * rows + i], entropy, 1e-5);
          ASSERT_NEAR(seen.distance[head * rows + i], distance, 1e-3);
          ASSERT_NEAR(seen.top_weights[(head * rows + i) * 3], best, 1e-6);
          const int64_t key = seen.top_keys[(head * rows + i) * 3];
          ASSERT_NEAR(key < 0 ? 0.0 : map[i * 610 + key], best, 1e-6);
        }
        for (int64_t j = 0; j < 610; ++j) ASSERT_NEAR(seen.column_sums[head * 610 + j], columns[j], 1e-5);
      }
    }
    const std::vector<float> raw = logits(spec, operands, cache, sequences, 2, 1, rows - 1, 1, 30, 6);
    for (int64_t j = 33; j < 36; ++j) EXPECT_EQ(raw[j - 30], -std::numeric_limits<float>::infinity());
  });
}

TEST_P(Decode, MistakesAreNamed) {
  KvCache cache(shape_of(CacheType::f32));
  const int64_t sequence = cache.create();
  append(cache, sequence, 5, 1);
  const Tensor q = normal({1, kHeads, 1, kDk}, 1);
  Tensor out(DType::f32, {1, kHeads, 1, kDv});
  const auto message = [&](auto&& spoil) {
    Spec spec;
    Operands operands;
    operands.q = q.view();
    operands.out = out.view();
    std::vector<int64_t> sequences{sequence};
    spoil(spec, operands, sequences);
    try {
      decode(spec, operands, cache, sequences);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  using Ids = std::vector<int64_t>;
  EXPECT_THAT(message([](Spec&, Operands&, Ids& ids) { ids[0] = 7; }), HasSubstr("no sequence 7"));
  EXPECT_THAT(message([](Spec&, Operands&, Ids& ids) { ids.clear(); }), HasSubstr("k has sizes"));
  EXPECT_THAT(message([&](Spec&, Operands& o, Ids&) { o.k = q.view(); }), HasSubstr("lie in the cache"));
  EXPECT_THAT(message([](Spec& s, Operands&, Ids&) { s.dropout = 0.5; }), HasSubstr("dropout is 0.5"));
  EXPECT_THAT(message([](Spec& s, Operands&, Ids&) { s.mask = Mask::dense(); }),
              HasSubstr("dense_mask is missing"));
  EXPECT_THAT(message([&](Spec&, Operands& o, Ids&) { o.bias = out.as<float>(); }),
              HasSubstr("bias has sizes"));
  EXPECT_THAT(message([](Spec&, Operands& o, Ids&) { o.q.size[3] = 8; }), HasSubstr("k has sizes"));
}

INSTANTIATE_TEST_SUITE_P(Targets, Decode, ::testing::ValuesIn(kernel::runnable_targets()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace regard::attention

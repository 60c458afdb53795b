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
  EXPECT_THAT(message([](Spec& s, Operands&, Ids&) { s.mask = Mask::dense(); }), HasSubstr("dense"));
  EXPECT_THAT(message([](Spec&, Operands& o, Ids&) { o.q.size[3] = 8; }), HasSubstr("k has sizes"));
}

INSTANTIATE_TEST_SUITE_P(Targets, Decode, ::testing::ValuesIn(kernel::runnable_targets()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace regard::attention

#include "regard/attention/cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/attention/problem.h"

namespace regard::attention {
namespace {

using kernel::CacheType;
using kernel::DType;
using regard::testing::Tensor;
using ::testing::HasSubstr;

KvCache::Shape small() {
  KvCache::Shape shape;
  shape.kv_heads = 2;
  shape.key_size = 5;
  shape.value_size = 3;
  shape.pages = 8;
  shape.page_size = 16;
  return shape;
}

// Random keys and values of some positions.
struct Rows {
  Tensor k, v;
  Rows(const KvCache::Shape& shape, int64_t batch, int64_t length, uint64_t seed, DType dtype = DType::f32)
      : k(dtype, {batch, shape.kv_heads, length, shape.key_size}, regard::testing::Layout::spaced),
        v(dtype, {batch, shape.kv_heads, length, shape.value_size}) {
    std::mt19937_64 random(seed);
    k.fill_normal(random);
    v.fill_normal(random);
  }
};

void append(KvCache& cache, std::vector<int64_t> sequences, Rows& rows) {
  cache.append(sequences, rows.k.view(), rows.v.view());
}

void append(KvCache& cache, int64_t sequence, int64_t length, uint64_t seed = 1) {
  Rows rows(cache.shape(), 1, length, seed);
  append(cache, {sequence}, rows);
}

std::vector<float> key(const KvCache& cache, int64_t sequence, int64_t head, int64_t position) {
  std::vector<float> numbers(static_cast<size_t>(cache.shape().key_size));
  cache.read(sequence, head, position, numbers.data(), nullptr);
  return numbers;
}

template <class F>
std::string message(F&& f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Cache, GivesBackWhatWasAppendedInAnyType) {
  for (const DType from : {DType::f32, DType::bf16, DType::f16}) {
    for (const CacheType type : {CacheType::f32, CacheType::bf16, CacheType::f16, CacheType::i8}) {
      SCOPED_TRACE(std::string(kernel::name(from)) + " into " + kernel::name(type));
      KvCache::Shape shape = small();
      shape.type = type;
      KvCache cache(shape);
      const std::vector<int64_t> sequences{cache.create(), cache.create()};
      Rows rows(shape, 2, 37, 3, from);
      append(cache, sequences, rows);
      for (int64_t b = 0; b < 2; ++b) {
        ASSERT_EQ(cache.length(sequences[b]), 37);
        for (int64_t h = 0; h < 2; ++h) {
          for (int64_t p = 0; p < 37; ++p) {
            const std::vector<float> stored = key(cache, sequences[b], h, p);
            std::vector<float> value(3);
            cache.read(sequences[b], h, p, nullptr, value.data());
            float largest = 0;
            for (int64_t f = 0; f < 5; ++f) largest = std::max(largest, std::abs(rows.k.get(b, h, p, f)));
            for (int64_t f = 0; f < 5; ++f) {
              const float x = rows.k.get(b, h, p, f);
              const float want = type == CacheType::bf16  ? kernel::to_float(kernel::to_bf16(x))
                                 : type == CacheType::f16 ? kernel::to_float(kernel::to_f16(x))
                                                          : x;
              EXPECT_NEAR(stored[f], want, type == CacheType::i8 ? largest / 127 * 0.5001F : 0.0F);
            }
            EXPECT_NEAR(value[2], rows.v.get(b, h, p, 2), type == CacheType::f32 ? 0.0F : 0.03F);
          }
        }
      }
    }
  }
}

TEST(Cache, AnInt8RowOfZerosIsZeroAndOneWithANaNIsNaN) {
  KvCache::Shape shape = small();
  shape.type = CacheType::i8;
  KvCache cache(shape);
  Rows rows(shape, 1, 4, 1);
  for (int64_t f = 0; f < 5; ++f) {
    rows.k.set(0, 0, 0, f, 0.0F);
    rows.k.set(0, 0, 3, f, 1e-45F);
  }
  rows.k.set(0, 1, 1, 2, std::numeric_limits<float>::quiet_NaN());
  rows.k.set(0, 1, 2, 2, std::numeric_limits<float>::infinity());
  const int64_t sequence = cache.create();
  append(cache, {sequence}, rows);
  EXPECT_EQ(key(cache, sequence, 0, 0), std::vector<float>(5, 0.0F));
  EXPECT_EQ(key(cache, sequence, 0, 3), std::vector<float>(5, 0.0F));
  for (const int64_t position : {1, 2}) {
    for (const float x : key(cache, sequence, 1, position)) EXPECT_TRUE(std::isnan(x));
    for (const float x : key(cache, sequence, 0, position)) EXPECT_FALSE(std::isnan(x));
  }
}

TEST(Cache, AForkSharesItsPagesUntilOneOfTheTwoWrites) {
  KvCache cache(small());
  const int64_t a = cache.create();
  append(cache, a, 40);  // 3 pages, the last half full
  EXPECT_EQ(cache.free_pages(), 5);
  const int64_t b = cache.fork(a);
  EXPECT_EQ(cache.free_pages(), 5);
  append(cache, b, 1, 2);  // copies the last page
  EXPECT_EQ(cache.free_pages(), 4);
  append(cache, a, 1, 3);  // the page is its own again
  EXPECT_EQ(cache.free_pages(), 4);
  EXPECT_EQ(key(cache, a, 1, 39), key(cache, b, 1, 39));
  EXPECT_NE(key(cache, a, 1, 40), key(cache, b, 1, 40));
  cache.release(a);
  EXPECT_EQ(cache.free_pages(), 5);
  const int64_t c = cache.fork(b, 20);
  EXPECT_EQ(cache.length(c), 20);
  EXPECT_EQ(key(cache, c, 0, 19), key(cache, b, 0, 19));
  cache.release(b);
  EXPECT_EQ(cache.free_pages(), 6);
  cache.release(c);
  EXPECT_EQ(cache.free_pages(), 8);
}

TEST(Cache, AFullPoolChangesNothing) {
  KvCache cache(small());
  const std::vector<int64_t> two{cache.create(), cache.create()};
  Rows rows(cache.shape(), 2, 60, 1);
  append(cache, two, rows);  // 8 pages of 16: all of them
  EXPECT_EQ(cache.free_pages(), 0);
  Rows more(cache.shape(), 2, 5, 2);
  EXPECT_THAT(message([&] { append(cache, two, more); }),
              HasSubstr("2 pages are needed and 0 of 8 are free"));
  EXPECT_THROW(append(cache, two, more), CacheFull);
  EXPECT_EQ(cache.length(two[0]), 60);
  EXPECT_EQ(cache.length(two[1]), 60);
  Rows fitting(cache.shape(), 2, 4, 3);
  append(cache, two, fitting);
  EXPECT_EQ(cache.length(two[1]), 64);
  cache.truncate(two[0], 48);
  EXPECT_EQ(cache.free_pages(), 1);
  append(cache, two[1], 16);
  EXPECT_EQ(cache.length(two[1]), 80);
}

TEST(Cache, OneFreePageIsEnoughForTwoForksOfOneTail) {
  KvCache::Shape shape = small();
  shape.pages = 2;
  KvCache cache(shape);
  const int64_t a = cache.create();
  append(cache, a, 10);
  const int64_t b = cache.fork(a);
  Rows rows(shape, 2, 3, 2);
  append(cache, {a, b}, rows);
  EXPECT_EQ(cache.free_pages(), 0);
  EXPECT_EQ(key(cache, a, 0, 9), key(cache, b, 0, 9));
  EXPECT_NE(key(cache, a, 0, 11), key(cache, b, 0, 11));
}

TEST(Cache, AWindowKeepsWhatLaterRowsSeeAndGivesBackTheRest) {
  KvCache::Shape shape = small();
  shape.window = 20;
  KvCache cache(shape);
  const int64_t sequence = cache.create();
  for (int i = 0; i < 1000; ++i) {
    append(cache, sequence, 1, static_cast<uint64_t>(i));
    ASSERT_LE(cache.shape().pages - cache.free_pages(), 3);
    ASSERT_EQ(cache.start(sequence), std::max(0, i - 19));
  }
  EXPECT_THAT(message([&] { key(cache, sequence, 0, 979); }), HasSubstr("it holds [980, 1000)"));
  cache.truncate(sequence, 999);  // the last append
  EXPECT_THAT(message([&] { cache.truncate(sequence, 998); }), HasSubstr("the window of 20 has dropped"));
  append(cache, sequence, 50);  // the rows of a chunk see back from its first one
  EXPECT_EQ(cache.start(sequence), 980);
  cache.truncate(sequence, 0);
  EXPECT_EQ(cache.free_pages(), 8);
  EXPECT_EQ(cache.start(sequence), 0);
}

TEST(Cache, MistakesAreNamed) {
  KvCache cache(small());
  const int64_t a = cache.create();
  append(cache, a, 5);
  EXPECT_THAT(message([&] { cache.length(99); }), HasSubstr("there is no sequence 99"));
  EXPECT_THAT(message([&] { cache.truncate(a, 6); }), HasSubstr("5 positions cannot be cut to 6"));
  EXPECT_THAT(message([&] { cache.fork(a, -3); }), HasSubstr("cannot be cut to -3"));
  Rows rows(cache.shape(), 2, 1, 1);
  EXPECT_THAT(message([&] { append(cache, {a, a}, rows); }), HasSubstr("is given twice"));
  EXPECT_THAT(message([&] { append(cache, {a}, rows); }), HasSubstr("k has sizes [2, 2, 1, 5]"));
  cache.release(a);
  EXPECT_THAT(message([&] { cache.release(a); }), HasSubstr("there is no sequence"));
  EXPECT_NE(cache.create(), a);
  const auto shape = [](auto&& spoil) {
    KvCache::Shape s = small();
    spoil(s);
    return message([&] { KvCache made(s); });
  };
  EXPECT_THAT(shape([](KvCache::Shape& s) { s.page_size = 20; }), HasSubstr("a multiple of 16"));
  EXPECT_THAT(shape([](KvCache::Shape& s) { s.pages = 0; }), HasSubstr("1 or more"));
  EXPECT_THAT(shape([](KvCache::Shape& s) { s.window = -1; }), HasSubstr("window is -1"));
  EXPECT_THAT(shape([](KvCache::Shape& s) { s.pages = int64_t{1} << 59; }), HasSubstr("below 2^60"));
}

}  // namespace
}  // namespace regard::attention

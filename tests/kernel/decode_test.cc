#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <type_traits>

#include "tests/kernel/problem.h"

namespace regard::kernel::testing {
namespace {

using ::testing::HasSubstr;
using Kind = ForwardTiling::Kind;

struct Case {
  int64_t heads = 4, kv_heads = 2, rows = 1, dk = 20, dv = 12;
  int64_t page_size = 16;
  std::vector<int64_t> starts{0}, lengths{50};
  int64_t ring = 0;    // entries of the page table; 0: as many as the longest entry needs
  int64_t first = 0;   // where position 0 stands in the table
  int64_t window = 0;  // keys that a row sees, itself included; 0: all before it
  bool mask = true;    // causal, aligned to the end of each entry
  bool slopes = false, sinks = false, wide = false;
  float softcap = 0.0F;
  bool nan_value = false;  // one of the keys has a value of NaN
  Kind kind = Kind::decode;

  std::string to_string() const {
    std::string text = "rows " + std::to_string(rows) + ", page size " + std::to_string(page_size) +
                       ", kind " + std::to_string(static_cast<int>(kind)) + ", lengths";
    for (const int64_t n : lengths) text += " " + std::to_string(n);
    return text;
  }
};

template <class T>
constexpr CacheType cache_type = std::is_same_v<T, float>  ? CacheType::f32
                                 : std::is_same_v<T, bf16> ? CacheType::bf16
                                 : std::is_same_v<T, f16>  ? CacheType::f16
                                                           : CacheType::i8;

template <class T>
T poison() {
  if constexpr (std::is_same_v<T, int8_t>)
    return 77;
  else
    return from_float<T>(kNan);
}

// One pool: rows of numbers, and what they are worth.
template <class T>
struct Pool {
  Extents size, stride;
  std::vector<T> numbers;
  std::vector<float> scales;

  Pool(const Extents& size) : size(size) {
    // Rows two elements apart, pages of all heads of one position after another.
    stride = {size[1] * size[2] * (size[3] + 2), size[3] + 2, size[1] * (size[3] + 2), 1};
    numbers.assign(static_cast<size_t>(size[0] * stride[0]), poison<T>());
    scales.assign(static_cast<size_t>(size[0] * size[1] * size[2]), kNan);
  }
  PagePool pool() const {
    return {numbers.data(), size, stride,
            cache_type<T> == CacheType::i8 ? View<const float>(scales.data(), {size[0], size[1], size[2], 1})
                                           : View<const float>()};
  }
  // Stores a row and returns what was stored.
  std::vector<float> set(int64_t page, int64_t head, int64_t at, std::vector<float> row) {
    T* to = numbers.data() + page * stride[0] + head * stride[1] + at * stride[2];
    float& scale = scales[static_cast<size_t>((page * size[1] + head) * size[2] + at)];
    scale = 0.01F + 0.001F * static_cast<float>(at % 7);
    for (size_t i = 0; i < row.size(); ++i) {
      if constexpr (std::is_same_v<T, int8_t>) {
        to[i] = static_cast<int8_t>(std::clamp(std::lrint(row[i] / scale), -127L, 127L));
        row[i] = static_cast<float>(to[i]) * scale;
      } else {
        to[i] = from_float<T>(row[i]);
        row[i] = to_float(to[i]);
      }
    }
    return row;
  }
};

// The same keys and values in pages and one after another.
template <class T>
struct Problem {
  // Values of a contiguous problem have the cache's type where there is one.
  using Flat = std::conditional_t<std::is_same_v<T, int8_t>, float, T>;

  Case c;
  int64_t batch, longest, table_size, pages;
  Tensor<Flat> q, k, v;
  Tensor<float> slopes, sinks, out, lse, flat_out, flat_lse;
  Pool<T> key_pool, value_pool;
  std::vector<int32_t> table;
  std::vector<int64_t> wide_table, first;
  PredicateMask seen, seen_flat;
  Forward paged, flat;

  explicit Problem(const Case& c, uint32_t seed = 1)
      : c(c),
        batch(static_cast<int64_t>(c.lengths.size())),
        longest(*std::max_element(c.lengths.begin(), c.lengths.end())),
        table_size(c.ring > 0 ? c.ring : std::max<int64_t>((longest + c.page_size - 1) / c.page_size, 1)),
        pages(batch * table_size + 3),
        key_pool({pages, c.kv_heads, c.page_size, c.dk}),
        value_pool({pages, c.kv_heads, c.page_size, c.dv}) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    q = make_tensor<Flat>({batch, c.heads, c.rows, c.dk}, Layout::contiguous, from_float<Flat>(kNan));
    k = make_tensor<Flat>({batch, c.kv_heads, longest, c.dk}, Layout::contiguous, Flat{});
    v = make_tensor<Flat>({batch, c.kv_heads, longest, c.dv}, Layout::contiguous, Flat{});
    each(q, [&](Flat& x, auto...) { x = from_float<Flat>(normal(random)); });
    slopes = make_tensor<float>({batch, c.heads, 1, 1}, Layout::contiguous, 0.1F);
    sinks = make_tensor<float>({batch, c.heads, 1, 1}, Layout::contiguous, 0.4F);
    // Pages in a random order; what no entry uses stays poisoned.
    std::vector<int32_t> order(static_cast<size_t>(pages));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    table.assign(order.begin(), order.begin() + batch * table_size);
    wide_table.assign(table.begin(), table.end());
    first.assign(static_cast<size_t>(batch), c.first);
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t j = c.starts[b]; j < c.lengths[b]; ++j)
        for (int64_t h = 0; h < c.kv_heads; ++h) {
          const int64_t at = (c.first + j / c.page_size) % table_size;
          const int64_t page = table[static_cast<size_t>(b * table_size + at)];
          std::vector<float> key(static_cast<size_t>(c.dk)), value(static_cast<size_t>(c.dv));
          for (float& x : key) x = normal(random);
          for (float& x : value) x = normal(random);
          if (c.nan_value && j == 3) value[1] = kNan;
          if constexpr (!std::is_same_v<T, int8_t>) {
            key = key_pool.set(page, h, j % c.page_size, key);
            value = value_pool.set(page, h, j % c.page_size, value);
          } else {
            key = key_pool.set(page, h, j % c.page_size, key);
            if (c.nan_value && j == 3) value[1] = 0;
            value = value_pool.set(page, h, j % c.page_size, value);
          }
          for (int64_t f = 0; f < c.dk; ++f) k(b, h, j, f) = from_float<Flat>(key[static_cast<size_t>(f)]);
          for (int64_t f = 0; f < c.dv; ++f) v(b, h, j, f) = from_float<Flat>(value[static_cast<size_t>(f)]);
        }
    const auto sees = [this](int64_t b, int64_t, int64_t i, int64_t j) {
      if (!this->c.mask) return true;
      const int64_t at = i + this->c.lengths[b] - this->c.rows;
      return j <= at && (this->c.window == 0 || j > at - this->c.window);
    };
    seen = {sees, longest};
    seen_flat = {[this, sees](int64_t b, int64_t h, int64_t i, int64_t j) {
                   return j >= this->c.starts[b] && j < this->c.lengths[b] && sees(b, h, i, j);
                 },
                 longest};
    out = make_tensor<float>({batch, c.heads, c.rows, c.dv}, Layout::contiguous, kNan);
    lse = make_tensor<float>({batch, c.heads, c.rows, 1}, Layout::contiguous, kNan);
    flat_out = out;
    flat_lse = lse;

    flat.q = q.view();
    flat.k = k.view();
    flat.v = v.view();
    flat.scale = 1.0F / std::sqrt(static_cast<float>(c.dk));
    flat.softcap = c.softcap;
    if (c.slopes) flat.slopes = slopes.view();
    if (c.sinks) flat.sinks = sinks.view();
    paged = flat;
    flat.alibi_offset = longest - c.rows;  // right for the longest entry
    flat.mask = seen_flat.lowered();
    flat.out = flat_out.view();
    flat.lse = flat_lse.view();
    paged.k.data = nullptr;
    paged.v.data = nullptr;
    paged.out = out.view();
    paged.lse = lse.view();
    if (c.mask) paged.mask = seen.lowered();
    paged.pages.type = cache_type<T>;
    paged.pages.k = key_pool.pool();
    paged.pages.v = value_pool.pool();
    if (c.wide)
      paged.pages.table64 = wide_table.data();
    else
      paged.pages.table32 = table.data();
    paged.pages.table_size = paged.pages.table_stride = table_size;
    paged.pages.first = first.data();
    paged.pages.lengths = this->c.lengths.data();
    paged.pages.starts = this->c.starts.data();
  }
  Problem(const Problem&) = delete;

  static void run(const Forward& p, Kind kind, int threads = 1) {
    ForwardTiling tiling;
    tiling.kind = kind;
    tiling.split_keys = 128;
    ThreadPool pool(threads);
    Workspace workspace(forward_workspace(p, tiling, threads));
    forward(p, tiling, workspace.span(), pool);
    EXPECT_TRUE(workspace.intact());
  }

  void expect_right() {
    run(paged, c.kind);
    const Expected e = expect<Flat>(flat);
    const double bound = (8 + 1.5 * e.largest_logit) * 0x1p-24;
    double largest = 0, worst = 0, squares = 0, errors = 0;
    size_t n = 0;
    each(out, [&](float& x, auto...) {
      const double want = e.out[n++];
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(x));
        return;
      }
      ASSERT_FALSE(std::isnan(x)) << "at " << n - 1;
      largest = std::max(largest, std::abs(want));
      worst = std::max(worst, std::abs(want - x));
      squares += want * want;
      errors += (want - x) * (want - x);
    });
    EXPECT_LE(worst, 4 * bound * largest);
    EXPECT_LE(std::sqrt(errors), bound * std::sqrt(squares));
    n = 0;
    each(lse, [&](float& x, auto...) {
      const double want = e.lse[n++];
      if (std::isfinite(want))
        EXPECT_NEAR(x, want, 4 * bound);
      else
        EXPECT_EQ(x, static_cast<float>(want));
    });
  }

  void expect_bits_of_contiguous() {
    run(paged, c.kind);
    run(flat, c.kind);
    each(out, [&](float& x, auto... at) {
      if (std::isnan(x))
        ASSERT_TRUE(std::isnan(flat_out(at...)));
      else
        ASSERT_EQ(x, flat_out(at...));
    });
    each(lse, [&](float& x, auto... at) { ASSERT_EQ(x, flat_lse(at...)); });
  }
};

class DecodeTest : public ::testing::TestWithParam<std::tuple<std::string, Kind>> {
 protected:
  void SetUp() override {
    select_target(std::get<0>(GetParam()));
    ASSERT_EQ(active_target(), std::get<0>(GetParam())) << "the target was not dispatched";
  }
  void TearDown() override { select_target(""); }

  template <class T>
  void check(Case c) {
    c.kind = std::get<1>(GetParam());
    SCOPED_TRACE(c.to_string());
    Problem<T> problem(c);
    problem.expect_right();
    if constexpr (!std::is_same_v<T, int8_t>) problem.expect_bits_of_contiguous();
  }
  void check_all(const Case& c) {
    check<float>(c);
    check<bf16>(c);
    check<f16>(c);
    check<int8_t>(c);
  }
};

TEST_P(DecodeTest, PagesOfAnySizeEqualKeysInARow) {
  for (const int64_t page_size : {16, 32, 48, 80, 256})
    for (const int64_t length : {1, 15, 16, 17, 33, 100, 129, 400}) {
      Case c;
      c.page_size = page_size;
      c.lengths = {length};
      check_all(c);
      c.mask = false;
      c.wide = true;
      check<float>(c);
    }
}

TEST_P(DecodeTest, EntriesOfDifferentLengthsAndAnEmptyOne) {
  for (const int64_t rows : {1, 3, 7}) {
    Case c;
    c.rows = rows;
    c.lengths = {40, 0, 200, 17, 1};
    c.starts = {0, 0, 0, 0, 0};
    check_all(c);
    c.sinks = true;
    c.softcap = 3;
    check_all(c);
  }
}

TEST_P(DecodeTest, AnyGroupAndHeadSize) {
  for (const int64_t group : {1, 2, 3, 4, 5, 8, 20, 33})
    for (const int64_t dk : {1, 16, 40, 128}) {
      Case c;
      c.heads = 2 * group;
      c.dk = dk;
      c.dv = dk + 3;
      c.lengths = {70};
      check_all(c);
    }
}

TEST_P(DecodeTest, ARingHoldsTheLastPositions) {
  for (const int64_t length : {70, 100, 130, 157, 300}) {
    Case c;
    c.rows = 2;
    c.window = 60;
    c.ring = 5;  // of 16: 60 + 1 keys and what lies before them in their page
    c.first = 3;
    c.lengths = {length};
    c.starts = {length - 61};
    c.slopes = true;
    check_all(c);
  }
}

TEST_P(DecodeTest, ANaNValueReachesItsRowsOnly) {
  Case c;
  c.rows = 3;
  c.lengths = {5};
  c.starts = {0};
  c.nan_value = true;
  check<float>(c);
  check<bf16>(c);
}

TEST_P(DecodeTest, BitsDoNotDependOnTheNumberOfThreads) {
  for (const int64_t heads : {4, 40}) {  // parts of few rows are merged by one thread, those of many by all
    Case c;
    c.heads = heads;
    c.rows = 2;
    c.lengths = {700, 0, 130};
    c.starts = {0, 0, 0};
    c.kind = std::get<1>(GetParam());
    Problem<int8_t> problem(c);
    problem.run(problem.paged, c.kind, 1);
    const auto want = problem.out.buffer;
    for (const int threads : {2, 3, 5}) {
      each(problem.out, [](float& x, auto...) { x = kNan; });
      problem.run(problem.paged, c.kind, threads);
      each(problem.out, [&](float& x, auto...) {
        ASSERT_EQ(x, want[static_cast<size_t>(&x - problem.out.buffer.data())]) << threads << " threads";
      });
    }
  }
}

TEST_P(DecodeTest, RandomCases) {
  std::mt19937 random(7);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int n = 0; n < 60; ++n) {
    SCOPED_TRACE(n);
    Case c;
    c.kv_heads = pick(1, 3);
    c.heads = c.kv_heads * pick(1, 4);
    c.rows = pick(1, 5);
    c.dk = pick(1, 70);
    c.dv = pick(1, 70);
    c.page_size = 16 * pick(1, 5);
    const int64_t batch = pick(1, 3);
    c.lengths.clear();
    for (int64_t b = 0; b < batch; ++b) c.lengths.push_back(pick(0, 300));
    c.lengths[0] = std::max<int64_t>(c.lengths[0], 1);
    c.starts.assign(static_cast<size_t>(batch), 0);
    c.window = pick(0, 1) * pick(1, 90);
    if (c.window > 0)
      for (int64_t b = 0; b < batch; ++b)
        c.starts[static_cast<size_t>(b)] =
            std::max<int64_t>(c.lengths[static_cast<size_t>(b)] - c.rows - c.window + 1, 0);
    c.first = pick(0, 9);
    c.sinks = pick(0, 1) == 1;
    c.softcap = pick(0, 2) == 2 ? 2.0F : 0.0F;
    c.wide = pick(0, 1) == 1;
    check_all(c);
  }
}

TEST_P(DecodeTest, PagesThatCannotBeAreNamed) {
  Case c;
  c.lengths = {50};
  Problem<float> problem(c);
  const auto message = [&](auto&& spoil) {
    Forward p = problem.paged;
    spoil(p);
    try {
      problem.run(p, std::get<1>(GetParam()));
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  std::vector<int32_t> table = problem.table;
  table[2] = 99;
  const int64_t too_long = 51;
  EXPECT_THAT(message([&](Forward& p) { p.pages.table32 = table.data(); }), HasSubstr("page 99"));
  EXPECT_THAT(message([&](Forward& p) { p.pages.lengths = &too_long; }), HasSubstr("[0, 51)"));
  EXPECT_THAT(message([&](Forward& p) { p.pages.k.size[2] = 24; }), HasSubstr("a multiple of 16"));
  EXPECT_THAT(message([&](Forward& p) { p.pages.type = CacheType::i8; }), HasSubstr("no scales"));
  EXPECT_THAT(message([&](Forward& p) { p.pages.v.stride[3] = 2; }), HasSubstr("feature stride"));
  EXPECT_THAT(message([&](Forward& p) { p.pages.table_size = 3; }), HasSubstr("4 pages"));
}

INSTANTIATE_TEST_SUITE_P(Targets, DecodeTest,
                         ::testing::Combine(::testing::ValuesIn(runnable_targets()),
                                            ::testing::Values(Kind::decode, Kind::prefill)),
                         [](const auto& info) {
                           return std::get<0>(info.param) +
                                  (std::get<1>(info.param) == Kind::decode ? "Decode" : "Prefill");
                         });

}  // namespace
}  // namespace regard::kernel::testing

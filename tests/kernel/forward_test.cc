#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "tests/kernel/problem.h"

namespace regard::kernel::testing {
namespace {

using Kind = ForwardTiling::Kind;

struct Case {
  int64_t batch = 1, heads = 2, kv_heads = 1, rows = 7, keys = 19, dk = 8, dv = 8;
  Layout layout = Layout::contiguous;
  Layout bias_layout = Layout::contiguous;
  float scale = 0.0F;  // 0: 1 / sqrt(dk)
  float softcap = 0.0F;
  bool bias = false, slopes = false, sinks = false, half_out = false;
  PredicateMask::Sees mask;
  float spread = 1.0F;  // standard deviation of q
  ForwardTiling tiling{};
  int threads = 1;
};

template <class T>
struct Data {
  Tensor<T> q, k, v;
  Tensor<float> bias, slopes, sinks, lse, out;
  Tensor<T> half_out;
  PredicateMask mask;
  Forward p;

  // Everything around the elements of the inputs is NaN, and everything around the outputs is a canary.
  explicit Data(const Case& c, uint32_t seed = 1) {
    const T nan = from_float<T>(kNan);
    q = make_tensor<T>({c.batch, c.heads, c.rows, c.dk}, c.layout, nan);
    k = make_tensor<T>({c.batch, c.kv_heads, c.keys, c.dk}, c.layout, nan);
    v = make_tensor<T>({c.batch, c.kv_heads, c.keys, c.dv}, c.layout, nan);
    bias = make_tensor<float>({c.batch, c.heads, c.rows, c.keys}, c.bias_layout, kNan);
    slopes = make_tensor<float>({c.batch, c.heads, 1, 1}, Layout::contiguous, kNan);
    sinks = make_tensor<float>({c.batch, c.heads, 1, 1}, Layout::contiguous, kNan);
    lse = make_tensor<float>({c.batch, c.heads, c.rows, 1}, Layout::contiguous, kCanary);
    out = make_tensor<float>({c.batch, c.heads, c.rows, c.dv}, c.layout, kCanary);
    half_out = make_tensor<T>({c.batch, c.heads, c.rows, c.dv}, c.layout, from_float<T>(kCanary));
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    each(q, [&](T& x, auto...) { x = from_float<T>(c.spread * normal(random)); });
    each(k, [&](T& x, auto...) { x = from_float<T>(normal(random)); });
    each(v, [&](T& x, auto...) { x = from_float<T>(normal(random)); });
    each(bias, [&](float& x, auto...) { x = normal(random); });
    each(slopes, [&](float& x, auto...) { x = 0.3F + 0.1F * normal(random); });
    each(sinks, [&](float& x, auto...) { x = normal(random); });
    p.q = q.view();
    p.k = k.view();
    p.v = v.view();
    if (c.half_out)
      p.out = half_out.view();
    else
      p.out = out.view();
    p.lse = lse.view();
    p.scale = c.scale != 0.0F ? c.scale : 1.0F / std::sqrt(static_cast<float>(std::max<int64_t>(c.dk, 1)));
    p.softcap = c.softcap;
    if (c.bias) p.bias = bias.view();
    if (c.slopes) p.slopes = slopes.view();
    if (c.sinks) p.sinks = sinks.view();
    p.alibi_offset = c.keys - c.rows;
    if (c.mask) {
      mask = {c.mask, c.keys};
      p.mask = mask.lowered();
    }
  }
  Data(const Data&) = delete;

  static constexpr float kCanary = 12345.0F;

  void expect_canaries() {
    expect_canaries(out, kCanary);
    expect_canaries(lse, kCanary);
    expect_canaries(half_out, to_float(from_float<T>(kCanary)));
  }
  template <class U>
  static void expect_canaries(Tensor<U>& t, float canary) {
    std::vector<U> buffer = t.buffer;
    each(t,
         [&](U& x, auto...) { buffer[static_cast<size_t>(&x - t.buffer.data())] = from_float<U>(canary); });
    for (const U& x : buffer) ASSERT_EQ(to_float(x), canary) << "written outside the view";
  }

  float output(bool half, int64_t b, int64_t h, int64_t i, int64_t f) {
    return half ? to_float(half_out(b, h, i, f)) : out(b, h, i, f);
  }
};

void run(const Forward& p, const ForwardTiling& tiling, int threads) {
  ThreadPool pool(threads);
  Workspace workspace(forward_workspace(p, tiling, threads));
  forward(p, tiling, workspace.span(), pool);
  EXPECT_TRUE(workspace.intact());
}

// The error bounds of the contract.
void expect_close(const std::vector<float>& got, const std::vector<double>& want, double largest_logit,
                  double rounding, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  double sum = 0, sum_error = 0, largest = 0, largest_error = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_FALSE(std::isnan(got[i])) << what << " is NaN at " << i;
    const double error = got[i] - want[i];
    sum += want[i] * want[i];
    sum_error += error * error;
    largest = std::max(largest, std::abs(want[i]));
    largest_error = std::max(largest_error, std::abs(error));
  }
  const double bound = (8 + 1.5 * largest_logit) * 0x1p-24 + rounding;
  EXPECT_LE(std::sqrt(sum_error), bound * std::sqrt(sum)) << what << ": rms, " << std::sqrt(sum_error / sum);
  EXPECT_LE(largest_error, 4 * bound * largest) << what << ": max, " << largest_error / largest;
}

template <class T>
void check(const Case& c) {
  Data<T> data(c);
  run(data.p, c.tiling, c.threads);
  const Expected e = expect<T>(data.p);
  data.expect_canaries();
  std::vector<float> out, lse;
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.heads; ++h)
      for (int64_t i = 0; i < c.rows; ++i) {
        for (int64_t f = 0; f < c.dv; ++f) out.push_back(data.output(c.half_out, b, h, i, f));
        lse.push_back(data.lse(b, h, i, 0));
      }
  const double rounding = !c.half_out               ? 0
                          : std::is_same_v<T, bf16> ? 0x1p-8
                          : std::is_same_v<T, f16>  ? 0x1p-11
                                                    : 0;
  expect_close(out, e.out, e.largest_logit, rounding, "out");
  for (size_t i = 0; i < lse.size(); ++i) {
    if (e.lse[i] == -INFINITY)
      EXPECT_EQ(lse[i], -kInf);
    else
      EXPECT_NEAR(lse[i], e.lse[i], (8 + 1.5 * e.largest_logit) * 0x1p-22);
  }
}

bool causal(int64_t, int64_t, int64_t i, int64_t j) {
  return j <= i;
}

// Every test of this fixture runs once for each target and kernel.
class ForwardTest : public ::testing::TestWithParam<std::tuple<std::string, Kind>> {
 protected:
  void SetUp() override {
    select_target(std::get<0>(GetParam()));
    ASSERT_EQ(active_target(), std::get<0>(GetParam())) << "the target was not dispatched";
  }
  void TearDown() override { select_target(""); }
  Kind kind() const { return std::get<1>(GetParam()); }
  Case make() const {
    Case c;
    c.tiling.kind = kind();
    c.tiling.split_keys = 64;
    return c;
  }
  void check_all(const Case& c) {
    {
      SCOPED_TRACE("f32");
      check<float>(c);
    }
    {
      SCOPED_TRACE("bf16");
      check<bf16>(c);
    }
    {
      SCOPED_TRACE("f16");
      check<f16>(c);
    }
  }
};

TEST_P(ForwardTest, OddSizesOfEveryAxis) {
  for (const int64_t rows : {1, 2, 5, 6, 7, 11, 12, 13, 17, 49})
    for (const int64_t keys : {1, 3, 15, 16, 17, 31, 33, 64, 65}) {
      SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(keys) + " keys");
      Case c = make();
      c.rows = rows;
      c.keys = keys;
      check<float>(c);
    }
  for (const int64_t dk : {0, 1, 3, 4, 7, 8, 15, 16, 17, 31, 40, 72, 80, 96, 112, 192, 256, 320, 512, 576})
    for (const int64_t dv : {1, 8, 13, 16, 17, 64, 512}) {
      SCOPED_TRACE("dk " + std::to_string(dk) + ", dv " + std::to_string(dv));
      Case c = make();
      c.dk = dk;
      c.dv = dv;
      check<float>(c);
      check<bf16>(c);
    }
}

TEST_P(ForwardTest, Layouts) {
  for (const Layout layout :
       {Layout::contiguous, Layout::position_major, Layout::features_apart, Layout::backwards}) {
    if (kind() == Kind::decode && layout != Layout::contiguous && layout != Layout::position_major) continue;
    for (const bool half_out : {false, true}) {
      Case c = make();
      c.batch = 2;
      c.heads = 4;
      c.kv_heads = 2;
      c.dk = 20;
      c.dv = 18;
      c.layout = layout;
      c.half_out = half_out;
      check_all(c);
    }
  }
}

TEST_P(ForwardTest, Options) {
  for (int options = 0; options < 32; ++options)
    for (const int64_t keys : {19, 70}) {
      SCOPED_TRACE(options);
      Case c = make();
      c.keys = keys;
      c.softcap = (options & 1) != 0 ? 2.0F : 0.0F;
      c.bias = (options & 2) != 0;
      c.slopes = (options & 4) != 0;
      c.sinks = (options & 8) != 0;
      if ((options & 16) != 0) c.mask = causal;
      check_all(c);
    }
}

TEST_P(ForwardTest, ScalesOfAnySign) {
  for (const float scale : {-0.7F, 1e-4F, 1.0F, 5.0F}) {
    Case c = make();
    c.scale = scale;
    check_all(c);
  }
}

TEST_P(ForwardTest, BiasOfAnyStride) {
  for (const Layout layout :
       {Layout::contiguous, Layout::position_major, Layout::features_apart, Layout::backwards}) {
    Case c = make();
    c.bias = true;
    c.bias_layout = layout;
    c.keys = 50;
    check<float>(c);
  }
  for (int axis = 0; axis < 4; ++axis) {
    Case c = make();
    c.bias = true;
    c.batch = 2;
    c.keys = 35;
    Data<float> data(c);
    data.p.bias.stride[static_cast<size_t>(axis)] = 0;
    run(data.p, c.tiling, 1);
    const Expected e = expect<float>(data.p);
    std::vector<float> out;
    each(data.out, [&](float& x, auto...) { out.push_back(x); });
    expect_close(out, e.out, e.largest_logit, 0, "out");
  }
}

TEST_P(ForwardTest, GroupedHeads) {
  for (const auto& [heads, kv_heads] :
       std::vector<std::pair<int64_t, int64_t>>{{65, 5}, {16, 4}, {27, 1}, {5, 1}, {3, 3}}) {
    Case c = make();
    c.heads = heads;
    c.kv_heads = kv_heads;
    c.rows = kind() == Kind::decode ? 1 : 9;
    c.mask = [](int64_t, int64_t h, int64_t i, int64_t j) { return (h + 3 * i + 5 * j) % 4 != 0; };
    check<float>(c);
  }
}

TEST_P(ForwardTest, Masks) {
  const std::vector<PredicateMask::Sees> masks = {
      causal,
      [](int64_t, int64_t, int64_t i, int64_t j) { return j <= i + 60 - 23; },  // aligned to the end
      [](int64_t, int64_t, int64_t i, int64_t j) { return i + 30 - j < 5 && j <= i + 30; },
      [](int64_t, int64_t, int64_t i, int64_t j) { return std::abs(i - j) <= 2; },
      [](int64_t b, int64_t, int64_t, int64_t j) { return j < 10 + 31 * b; },
      [](int64_t, int64_t, int64_t i, int64_t j) { return (i * 31 + j * 17) % 5 < 2; },
      [](int64_t, int64_t, int64_t i, int64_t j) { return j % 16 == i % 16; },
      [](int64_t, int64_t, int64_t i, int64_t j) { return j == i || j == 59; },
  };
  for (size_t m = 0; m < masks.size(); ++m)
    for (const int64_t key_block : {16, 4096}) {
      SCOPED_TRACE(m);
      Case c = make();
      c.batch = 2;
      c.rows = 23;
      c.keys = 60;
      c.tiling.key_block = key_block;
      c.mask = masks[m];
      check_all(c);
    }
}

TEST_P(ForwardTest, LongKeysInBlocks) {
  for (const bool rising : {false, true}) {
    Case c = make();
    c.keys = 1500;
    c.dk = 16;
    c.tiling.key_block = 256;
    c.rows = kind() == Kind::decode ? 2 : 14;
    c.sinks = true;
    if (rising) {
      c.slopes = true;  // the maximum moves in every block
    } else {
      c.mask = [](int64_t, int64_t, int64_t i, int64_t j) { return j % 700 < 40 + 20 * i; };
    }
    check_all(c);
  }
}

TEST_P(ForwardTest, NothingToSee) {
  Case c = make();
  c.rows = 8;
  c.keys = 20;
  c.mask = [](int64_t, int64_t, int64_t i, int64_t) { return i % 2 == 0; };
  for (const bool sinks : {false, true}) {
    c.sinks = sinks;
    Data<float> data(c);
    run(data.p, c.tiling, 1);
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t i = 1; i < 8; i += 2) {
        EXPECT_EQ(data.lse(0, h, i, 0), sinks ? data.sinks(0, h, 0, 0) : -kInf);
        for (int64_t f = 0; f < c.dv; ++f) EXPECT_EQ(data.out(0, h, i, f), 0.0F);
      }
    check<float>(c);
  }
  c.mask = nullptr;
  c.keys = 0;
  for (const bool sinks : {false, true}) {
    c.sinks = sinks;
    Data<float> data(c);
    run(data.p, c.tiling, 1);
    each(data.out, [](float& x, auto...) { EXPECT_EQ(x, 0.0F); });
    EXPECT_EQ(data.lse(0, 0, 0, 0), sinks ? data.sinks(0, 0, 0, 0) : -kInf);
  }
}

TEST_P(ForwardTest, ZeroSizes) {
  for (int axis = 0; axis < 4; ++axis) {
    Case c = make();
    (axis == 0 ? c.batch : axis == 1 ? c.rows : axis == 2 ? c.dv : c.heads) = 0;
    if (axis == 3) c.kv_heads = 0;
    Data<float> data(c);
    run(data.p, c.tiling, 2);
    data.expect_canaries();
  }
}

// pytorch#101967: causal, L = 4, V[3] = NaN: rows 0 to 2 are finite and equal to the run without it, row 3 is
// NaN.
TEST_P(ForwardTest, NonFiniteReachesOnlyTheRowsThatSeeIt) {
  for (const float poison : {kNan, kInf, -kInf})
    for (const bool in_keys : {false, true})
      for (const int64_t length : {4, 40}) {
        SCOPED_TRACE(std::to_string(poison) + (in_keys ? " in k, L " : " in v, L ") + std::to_string(length));
        Case c = make();
        c.rows = c.keys = length;
        c.mask = causal;
        Data<float> clean(c);
        run(clean.p, c.tiling, 1);
        Data<float> data(c);
        const int64_t at = length - 1;
        (in_keys ? data.k : data.v)(0, 0, at, 3) = poison;
        run(data.p, c.tiling, 1);
        for (int64_t h = 0; h < 2; ++h) {
          for (int64_t i = 0; i < at; ++i)
            for (int64_t f = 0; f < c.dv; ++f) EXPECT_EQ(data.out(0, h, i, f), clean.out(0, h, i, f));
          for (int64_t f = 0; f < c.dv; ++f) {
            if (in_keys && std::isinf(poison))
              continue;  // one infinite logit of either sign: checked elsewhere
            if (in_keys || (f == 3 && std::isnan(poison)))
              EXPECT_TRUE(std::isnan(data.out(0, h, at, f)));
            else if (f == 3)
              EXPECT_EQ(data.out(0, h, at, f), poison);
            else
              EXPECT_EQ(data.out(0, h, at, f), clean.out(0, h, at, f));
          }
        }
      }
}

TEST_P(ForwardTest, KeysThatNobodySeesMayBeAnything) {
  for (const float poison : {kNan, kInf}) {
    Case c = make();
    c.keys = 37;
    c.mask = [](int64_t, int64_t, int64_t, int64_t j) { return j % 5 != 3; };
    Data<float> data(c);
    for (int64_t j = 3; j < c.keys; j += 5)
      for (int64_t f = 0; f < 8; ++f) data.k(0, 0, j, f) = data.v(0, 0, j, f) = poison;
    run(data.p, c.tiling, 1);
    const Expected e = expect<float>(data.p);
    std::vector<float> out;
    each(data.out, [&](float& x, auto...) { out.push_back(x); });
    expect_close(out, e.out, e.largest_logit, 0, "out");
  }
}

// pytorch#141128: a NaN query gives NaN, and only in its own row.
TEST_P(ForwardTest, NanQuery) {
  Case c = make();
  c.rows = 9;
  Data<float> data(c);
  for (int64_t f = 0; f < c.dk; ++f) data.q(0, 1, 4, f) = kNan;
  run(data.p, c.tiling, 1);
  each(data.out,
       [&](float& x, int64_t, int64_t h, int64_t i, int64_t) { EXPECT_EQ(std::isnan(x), h == 1 && i == 4); });
  each(data.lse,
       [&](float& x, int64_t, int64_t h, int64_t i, int64_t) { EXPECT_EQ(std::isnan(x), h == 1 && i == 4); });
}

// pytorch#127055: leading tiles that are masked as a whole; all inputs 1, so the output is 1.
TEST_P(ForwardTest, BandWithLeadingTilesMasked) {
  Case c = make();
  c.rows = c.keys = 640;
  c.tiling.key_block = 256;
  c.mask = [](int64_t, int64_t, int64_t i, int64_t j) { return std::abs(i - j) < 10; };
  Data<float> data(c);
  each(data.q, [](float& x, auto...) { x = 1.0F; });
  each(data.k, [](float& x, auto...) { x = 1.0F; });
  each(data.v, [](float& x, auto...) { x = 1.0F; });
  run(data.p, c.tiling, 1);
  each(data.out, [](float& x, auto...) { EXPECT_NEAR(x, 1.0F, 1e-6F); });
}

TEST_P(ForwardTest, BiasOfMinusInfinityMasks) {
  Case c = make();
  c.keys = 50;
  c.bias = true;
  Data<float> data(c);
  each(data.bias, [](float& x, int64_t, int64_t, int64_t i, int64_t j) {
    if (i == 2 || j % 3 == 0) x = -kInf;
  });
  for (int64_t f = 0; f < 8; ++f) data.v(0, 0, 0, f) = kNan;
  run(data.p, c.tiling, 1);
  for (int64_t f = 0; f < 8; ++f) EXPECT_EQ(data.out(0, 0, 2, f), 0.0F);
  EXPECT_EQ(data.lse(0, 0, 2, 0), -kInf);
  const Expected e = expect<float>(data.p);
  std::vector<float> out;
  each(data.out, [&](float& x, auto...) { out.push_back(x); });
  expect_close(out, e.out, e.largest_logit, 0, "out");
}

// llama.cpp#29034: padding must not enter before the softcap. 65 keys whose logits saturate alike.
TEST_P(ForwardTest, SoftcapWithOneKeyPastTheTile) {
  Case c = make();
  c.keys = 65;
  c.softcap = 1.0F;
  c.scale = 1.0F;
  Data<float> data(c);
  each(data.q, [](float& x, auto...) { x = 10.0F; });
  each(data.k, [](float& x, auto...) { x = -10.0F; });
  each(data.v, [](float& x, int64_t, int64_t, int64_t j, int64_t) { x = j == 64 ? 1.0F : 0.0F; });
  run(data.p, c.tiling, 1);
  each(data.out, [](float& x, auto...) { EXPECT_NEAR(x, 1.0F / 65, 1e-8F); });
}

// onnx#7867: q = 0, cap 1, key 1 masked: the weight of key 0 is 1 and the poison beside it does not show.
TEST_P(ForwardTest, MaskComesAfterSoftcap) {
  Case c = make();
  c.keys = 2;
  c.softcap = 1.0F;
  c.mask = [](int64_t, int64_t, int64_t, int64_t j) { return j == 0; };
  Data<float> data(c);
  each(data.q, [](float& x, auto...) { x = 0.0F; });
  each(data.v, [](float& x, int64_t, int64_t, int64_t j, int64_t) { x = j == 1 ? 1000.0F : 2.0F; });
  run(data.p, c.tiling, 1);
  each(data.out, [](float& x, auto...) { EXPECT_EQ(x, 2.0F); });
}

TEST_P(ForwardTest, HugeFiniteLogitsPickOneKey) {
  Case c = make();
  c.dk = 1;
  c.scale = 1.0F;
  Data<float> data(c);
  each(data.q, [](float& x, auto...) { x = 120.0F; });
  each(data.k, [](float& x, int64_t, int64_t, int64_t j, int64_t) { x = j == 11 ? 60.0F : -60.0F; });
  run(data.p, c.tiling, 1);
  each(data.out, [&](float& x, int64_t, int64_t, int64_t, int64_t f) { EXPECT_EQ(x, data.v(0, 0, 11, f)); });
}

// One key, q.k = 0, sink 0: half of the mass is the sink's.
TEST_P(ForwardTest, SinkTakesItsShare) {
  Case c = make();
  c.keys = 1;
  c.sinks = true;
  Data<float> data(c);
  each(data.q, [](float& x, auto...) { x = 0.0F; });
  each(data.sinks, [](float& x, auto...) { x = 0.0F; });
  run(data.p, c.tiling, 1);
  each(data.out,
       [&](float& x, int64_t, int64_t, int64_t, int64_t f) { EXPECT_EQ(x, data.v(0, 0, 0, f) / 2); });
  EXPECT_NEAR(data.lse(0, 0, 0, 0), std::log(2.0), 1e-7);
}

// pytorch#162588: more than 65536 keys. q = 0, V[j] = j.
TEST_P(ForwardTest, ManyKeys) {
  Case c = make();
  c.heads = 1;
  c.rows = 1;
  c.keys = 70001;
  c.dk = 4;
  c.dv = 1;
  c.tiling.split_keys = 512;
  Data<float> data(c);
  each(data.q, [](float& x, auto...) { x = 0.0F; });
  each(data.v, [](float& x, int64_t, int64_t, int64_t j, int64_t) { x = static_cast<float>(j); });
  run(data.p, c.tiling, 1);
  EXPECT_NEAR(data.out(0, 0, 0, 0), 35000.0F, 0.035F);
}

// pytorch#191937: one key and value head, expanded by zero strides.
TEST_P(ForwardTest, ExpandedKeysAndValues) {
  Case c = make();
  c.batch = 3;
  c.heads = c.kv_heads = 4;
  c.keys = 33;
  Data<float> data(c);
  for (const size_t axis : {size_t{0}, size_t{1}}) data.p.k.stride[axis] = data.p.v.stride[axis] = 0;
  run(data.p, c.tiling, 1);
  const Expected e = expect<float>(data.p);
  std::vector<float> out;
  each(data.out, [&](float& x, auto...) { out.push_back(x); });
  expect_close(out, e.out, e.largest_logit, 0, "out");
}

std::vector<float> all_bits(Data<float>& data) {
  std::vector<float> values;
  each(data.out, [&](float& x, auto...) { values.push_back(x); });
  each(data.lse, [&](float& x, auto...) { values.push_back(x); });
  return values;
}

TEST_P(ForwardTest, BitsDoNotDependOnThreadsOrTime) {
  for (const int64_t kv_heads : {1, 8}) {
    Case c = make();
    c.batch = 2;
    c.heads = 8;
    c.kv_heads = kv_heads;
    c.rows = kind() == Kind::decode ? 2 : 101;
    c.keys = 300;
    c.tiling.key_block = 256;
    c.mask = [](int64_t, int64_t, int64_t i, int64_t j) { return j <= i + 60; };
    Data<float> first(c);
    run(first.p, c.tiling, 1);
    for (const int threads : {1, 2, 3, 5, 2, 5}) {
      Data<float> again(c);
      run(again.p, c.tiling, threads);
      EXPECT_EQ(all_bits(again), all_bits(first)) << threads << " threads";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, ForwardTest,
                         ::testing::Combine(::testing::ValuesIn(runnable_targets()),
                                            ::testing::Values(Kind::prefill, Kind::decode)),
                         [](const auto& info) {
                           return std::get<0>(info.param) +
                                  (std::get<1>(info.param) == Kind::prefill ? "_prefill" : "_decode");
                         });

// A prefill row does not depend on the batch, the number of rows or the rows beside it.
class PrefillRowTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { select_target(GetParam()); }
  void TearDown() override { select_target(""); }
};

TEST_P(PrefillRowTest, RowAloneEqualsRowInBlock) {
  for (const int masked : {0, 1, 2}) {
    Case c;
    c.batch = 2;
    c.heads = 2;
    c.kv_heads = 1;
    c.rows = 70;
    c.keys = 530;
    c.dk = c.dv = 24;
    c.bias = c.sinks = true;
    c.tiling.key_block = 256;
    if (masked == 1) c.mask = [](int64_t, int64_t, int64_t i, int64_t j) { return j <= i * 7; };
    if (masked == 2) c.mask = [](int64_t, int64_t, int64_t i, int64_t j) { return std::abs(j - i * 7) < 40; };
    Data<float> block(c);
    run(block.p, c.tiling, 2);
    for (const int64_t i : {0, 1, 5, 6, 17, 36, 69})
      for (const int64_t count : {1, 3}) {
        if (i + count > c.rows) continue;
        // The same row as a problem of its own: a view of one batch entry and `count` rows.
        Data<float> alone(c);
        PredicateMask shifted{
            [&](int64_t b, int64_t h, int64_t r, int64_t j) { return !c.mask || c.mask(b + 1, h, r + i, j); },
            c.keys};
        Forward p = alone.p;
        p.q = View<const float>(alone.q.view().at(1, 0, i), {1, 2, count, c.dk}, alone.q.stride);
        p.k = View<const float>(alone.k.view().at(1, 0, 0), {1, 1, c.keys, c.dk}, alone.k.stride);
        p.v = View<const float>(alone.v.view().at(1, 0, 0), {1, 1, c.keys, c.dv}, alone.v.stride);
        p.out = View<float>(alone.out.view().at(1, 0, i), {1, 2, count, c.dv}, alone.out.stride);
        p.lse = View<float>(alone.lse.view().at(1, 0, i), {1, 2, count, 1}, alone.lse.stride);
        p.bias = View<const float>(alone.bias.view().at(1, 0, i), {1, 2, count, c.keys}, alone.bias.stride);
        p.sinks = View<const float>(alone.sinks.view().at(1, 0, 0), {1, 2, 1, 1}, alone.sinks.stride);
        if (c.mask) p.mask = shifted.lowered();
        run(p, c.tiling, 1);
        for (int64_t h = 0; h < 2; ++h) {
          EXPECT_EQ(alone.lse(1, h, i, 0), block.lse(1, h, i, 0));
          for (int64_t f = 0; f < c.dv; ++f) EXPECT_EQ(alone.out(1, h, i, f), block.out(1, h, i, f));
        }
      }
  }
}

// The sum of n weights of 1 has the logarithm of n, whatever n's digits are.
TEST_P(PrefillRowTest, LseOfUniformRowsIsTheLogarithmOfTheirLength) {
  for (int64_t keys = 1; keys < 3000; keys += 1 + keys / 37) {
    Case c;
    c.rows = 13;
    c.keys = keys;
    c.dk = c.dv = 1;
    Data<float> data(c);
    each(data.q, [](float& x, auto...) { x = 0.0F; });
    run(data.p, {.kind = Kind::prefill}, 1);
    const double want = std::log(static_cast<double>(keys));
    for (int64_t i = 0; i < c.rows; ++i) ASSERT_NEAR(data.lse(0, 0, i, 0), want, 1.5e-7 * want) << keys;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, PrefillRowTest, ::testing::ValuesIn(runnable_targets()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace regard::kernel::testing

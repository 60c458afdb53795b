#include "regard/attention/mla.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "regard/attention/attention.h"
#include "tests/attention/problem.h"
#include "tests/attention/target_test.h"
#include "tests/support/compare.h"
#include "tests/support/safetensors.h"

namespace regard::attention {
namespace {

using kernel::CacheType;
using kernel::DType;
using regard::testing::is_close;
using regard::testing::Tensor;
using ::testing::HasSubstr;

using Numbers = std::vector<double>;

// rows [n, in] times weight [out, in]^T.
Numbers linear(const Numbers& rows, const Numbers& weight, int64_t in, int64_t out) {
  const int64_t n = static_cast<int64_t>(rows.size()) / in;
  Numbers result(static_cast<size_t>(n * out));
  for (int64_t i = 0; i < n; ++i)
    for (int64_t o = 0; o < out; ++o)
      for (int64_t k = 0; k < in; ++k) result[i * out + o] += rows[i * in + k] * weight[o * in + k];
  return result;
}

Numbers rms_norm(Numbers rows, const Numbers& weight) {
  const auto size = weight.size();
  for (size_t i = 0; i < rows.size(); i += size) {
    double squares = 0;
    for (size_t k = 0; k < size; ++k) squares += rows[i + k] * rows[i + k];
    const double factor = 1 / std::sqrt(squares / static_cast<double>(size) + 1e-6);
    for (size_t k = 0; k < size; ++k) rows[i + k] *= factor * weight[k];
  }
  return rows;
}

// A layer of tests/golden/mla up to what mla() takes, and what comes after it.
struct Layer {
  static constexpr int64_t kBatch = 2, kLength = 7, kHidden = 24, kHeads = 3, kRank = 8, kRope = 4, kNope = 6,
                           kValue = 5;
  regard::testing::SafeTensors file;
  std::vector<float> kv_b;
  Tensor q, latents;

  explicit Layer(const std::string& name)
      : file(std::string(REGARD_GOLDEN_DIR) + "/mla/" + name + ".safetensors"),
        kv_b(file["w.kv_b_proj.weight"].to<float>()),
        q(DType::f32, {kBatch, kHeads, kLength, kNope + kRope}),
        latents(DType::f32, {kBatch, 1, kLength, kRank + kRope}) {
    const Numbers x = file["in.x"].to<double>();
    const bool halves = name.find("half") != std::string::npos;
    Numbers queries;
    if (file.has("w.q_proj.weight")) {
      queries = linear(x, weight("q_proj"), kHidden, kHeads * (kNope + kRope));
    } else {
      const Numbers low = rms_norm(linear(x, weight("q_a_proj"), kHidden, 10), weight("q_a_layernorm"));
      queries = linear(low, weight("q_b_proj"), 10, kHeads * (kNope + kRope));
    }
    const Numbers both = linear(x, weight("kv_a_proj_with_mqa"), kHidden, kRank + kRope);
    for (int64_t b = 0; b < kBatch; ++b) {
      for (int64_t i = 0; i < kLength; ++i) {
        const auto row = both.begin() + (b * kLength + i) * (kRank + kRope);
        const Numbers latent = rms_norm(Numbers(row, row + kRank), weight("kv_a_layernorm"));
        set(latents, b, 0, i, 0, latent);
        set(latents, b, 0, i, kRank, rotate(Numbers(row + kRank, row + kRank + kRope), i, halves));
        for (int64_t h = 0; h < kHeads; ++h) {
          const auto at = queries.begin() + ((b * kLength + i) * kHeads + h) * (kNope + kRope);
          set(q, b, h, i, 0, Numbers(at, at + kNope));
          set(q, b, h, i, kNope, rotate(Numbers(at + kNope, at + kNope + kRope), i, halves));
        }
      }
    }
  }

  Numbers weight(const std::string& name) const { return file["w." + name + ".weight"].to<double>(); }

  MlaWeights weights() const {
    const int64_t head = (kNope + kValue) * kRank;
    return {{kv_b.data(), {1, kHeads, kNope, kRank}, {0, head, kRank, 1}},
            {kv_b.data() + kNope * kRank, {1, kHeads, kValue, kRank}, {0, head, kRank, 1}},
            kRope};
  }

  Numbers rotate(Numbers x, int64_t position, bool halves) const {
    const Numbers angles = file["in.rope_angles"].to<double>();
    Numbers turned = x;
    for (int64_t pair = 0; pair < kRope / 2; ++pair) {
      const size_t a = halves ? pair : 2 * pair;
      const size_t c = halves ? pair + kRope / 2 : 2 * pair + 1;
      const double angle = angles[position * (kRope / 2) + pair];
      turned[a] = x[a] * std::cos(angle) - x[c] * std::sin(angle);
      turned[c] = x[c] * std::cos(angle) + x[a] * std::sin(angle);
    }
    return turned;
  }

  static void set(Tensor& to, int64_t b, int64_t h, int64_t i, int64_t f, const Numbers& row) {
    for (size_t n = 0; n < row.size(); ++n)
      to.set(b, h, i, f + static_cast<int64_t>(n), static_cast<float>(row[n]));
  }

  // out: [B, H, L, value].
  void expect_right(const Tensor& out) const {
    Numbers heads;
    for (int64_t b = 0; b < kBatch; ++b)
      for (int64_t i = 0; i < kLength; ++i)
        for (int64_t h = 0; h < kHeads; ++h)
          for (int64_t f = 0; f < kValue; ++f) heads.push_back(out.get(b, h, i, f));
    const Numbers got = linear(heads, weight("o_proj"), kHeads * kValue, kHidden);
    EXPECT_TRUE(is_close(got, file["out.out"].to<double>(), {1e-6, 4e-6}));
  }
};

Spec causal() {
  Spec spec;
  spec.mask = Mask::causal(Align::bottom_right);
  return spec;
}

KvCache::Shape cache_of(int64_t rank, int64_t rope, CacheType type = CacheType::f32) {
  KvCache::Shape shape;
  shape.key_size = rank + rope;
  shape.value_size = rank;
  shape.values_in_keys = true;
  shape.pages = 64;
  shape.page_size = 16;
  shape.type = type;
  return shape;
}

class Mla : public regard::testing::EachTarget {};

constexpr const char* kLayers[] = {"mla_deepseek_v2_qlora", "mla_deepseek_v2_noqlora", "mla_deepseek_v3_half",
                                   "mla_deepseek_v3_interleave"};

TEST_P(Mla, PublishedLayersByBothPaths) {
  for (const std::string name : kLayers) {
    for (const MlaPath path : {MlaPath::naive, MlaPath::absorbed}) {
      SCOPED_TRACE(name + (path == MlaPath::naive ? ", naive" : ", absorbed"));
      Layer layer(name);
      Tensor out(DType::f32, {Layer::kBatch, Layer::kHeads, Layer::kLength, Layer::kValue});
      Operands operands;
      operands.q = layer.q.view();
      operands.k = layer.latents.view();
      operands.out = out.view();
      mla(causal(), layer.weights(), operands, path);
      layer.expect_right(out);
    }
  }
}

TEST_P(Mla, PublishedLayersTokenByTokenFromACache) {
  for (const std::string name : kLayers) {
    for (const MlaPath path : {MlaPath::naive, MlaPath::absorbed}) {
      SCOPED_TRACE(name + (path == MlaPath::naive ? ", naive" : ", absorbed"));
      Layer layer(name);
      KvCache cache(cache_of(Layer::kRank, Layer::kRope));
      const std::vector<int64_t> sequences{cache.create(), cache.create()};
      Tensor out(DType::f32, {Layer::kBatch, Layer::kHeads, Layer::kLength, Layer::kValue});
      const auto rows = [](auto view, int64_t begin, int64_t end) {
        view.data += begin * view.stride[2];
        view.size[2] = end - begin;
        return view;
      };
      for (int64_t at = 0; at < Layer::kLength;) {
        const int64_t end = at == 0 ? 3 : at + 1;  // a chunk, then single tokens
        cache.append(sequences, rows(layer.latents.as<const float>(), at, end), {});
        Operands operands;
        operands.q = rows(layer.q.as<const float>(), at, end);
        operands.out = rows(out.as<float>(), at, end);
        mla_decode({}, layer.weights(), operands, cache, sequences, path);
        at = end;
      }
      layer.expect_right(out);
    }
  }
}

// Random latents and weights, and the definition in float64.
struct Random {
  int64_t heads = 4, rank = 48, rope = 12, nope = 20, value = 28;
  Tensor w_uk, w_uv, q, latents;

  Random(int64_t batch, int64_t rows, int64_t keys)
      : w_uk(DType::f32, {1, heads, nope, rank}),
        w_uv(DType::f32, {1, heads, value, rank}),
        q(DType::f32, {batch, heads, rows, nope + rope}),
        latents(DType::f32, {batch, 1, keys, rank + rope}) {
    std::mt19937_64 random(static_cast<uint64_t>(rows * 1000 + keys));
    w_uk.fill_normal(random, 0.15F);
    w_uv.fill_normal(random, 0.15F);
    q.fill_normal(random);
    latents.fill_normal(random);
  }
  MlaWeights weights() { return {w_uk.as<const float>(), w_uv.as<const float>(), rope}; }

  // latent(b, j, f): one number of what is stored. Causal, aligned to the end.
  template <class Latent>
  Numbers definition(const std::vector<int64_t>& lengths, Latent&& latent) const {
    Numbers out;
    for (int64_t b = 0; b < q.size()[0]; ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < q.size()[2]; ++i) {
          const int64_t seen = std::max<int64_t>(i + lengths[b] - q.size()[2] + 1, 0);
          Numbers weights(static_cast<size_t>(seen)), values(static_cast<size_t>(value));
          double sum = 0;
          for (int64_t j = 0; j < seen; ++j) {
            double logit = 0;
            for (int64_t n = 0; n < nope; ++n) {
              double key = 0;
              for (int64_t r = 0; r < rank; ++r) key += w_uk.get(0, h, n, r) * latent(b, j, r);
              logit += q.get(b, h, i, n) * key;
            }
            for (int64_t r = 0; r < rope; ++r) logit += q.get(b, h, i, nope + r) * latent(b, j, rank + r);
            weights[j] = std::exp(logit / std::sqrt(static_cast<double>(nope + rope)));
            sum += weights[j];
          }
          for (int64_t j = 0; j < seen; ++j)
            for (int64_t f = 0; f < value; ++f)
              for (int64_t r = 0; r < rank; ++r)
                values[f] += weights[j] / sum * w_uv.get(0, h, f, r) * latent(b, j, r);
          out.insert(out.end(), values.begin(), values.end());
        }
    return out;
  }
};

// The two paths project once more than attention() does.
constexpr regard::testing::Bound kBound{2e-6, 8e-6};

TEST_P(Mla, BothPathsEqualTheDefinition) {
  for (const int64_t rows : {1, 5, 40}) {
    Random problem(2, rows, 60);
    const Numbers want = problem.definition(
        {60, 60}, [&](int64_t b, int64_t j, int64_t f) { return problem.latents.get(b, 0, j, f); });
    for (const MlaPath path : {MlaPath::naive, MlaPath::absorbed}) {
      Tensor out(DType::f32, {2, problem.heads, rows, problem.value});
      Operands operands;
      operands.q = problem.q.view();
      operands.k = problem.latents.view();
      operands.out = out.view();
      mla(causal(), problem.weights(), operands, path);
      EXPECT_TRUE(is_close(out.values(), want, kBound)) << rows << " rows";
    }
  }
}

TEST_P(Mla, CachesOfEveryTypeByBothPaths) {
  for (const CacheType type : {CacheType::f32, CacheType::bf16, CacheType::f16, CacheType::i8}) {
    for (const int64_t rows : {1, 9}) {
      SCOPED_TRACE(std::string(kernel::name(type)) + ", " + std::to_string(rows) + " rows");
      Random problem(3, rows, 70);
      KvCache cache(cache_of(problem.rank, problem.rope, type));
      const std::vector<int64_t> sequences{cache.create(), cache.create(), cache.create()};
      const std::vector<int64_t> lengths{70, 0, 33};
      for (int64_t b = 0; b < 3; ++b) {
        View<const float> part = problem.latents.as<const float>();
        part.data += b * part.stride[0];
        part.size = {1, 1, lengths[b], problem.rank + problem.rope};
        cache.append(std::vector<int64_t>{sequences[b]}, part, {});
      }
      std::vector<float> stored(static_cast<size_t>(problem.rank + problem.rope));
      const Numbers want = problem.definition(lengths, [&](int64_t b, int64_t j, int64_t f) {
        if (f == 0) cache.read(sequences[b], 0, j, stored.data(), nullptr);
        if (f == problem.rank) cache.read(sequences[b], 0, j, stored.data(), nullptr);
        return stored[static_cast<size_t>(f)];
      });
      for (const MlaPath path : {MlaPath::naive, MlaPath::absorbed}) {
        Tensor out(DType::f32, {3, problem.heads, rows, problem.value});
        Operands operands;
        operands.q = problem.q.view();
        operands.out = out.view();
        mla_decode({}, problem.weights(), operands, cache, sequences, path);
        EXPECT_TRUE(is_close(out.values(), want, kBound));
      }
    }
  }
}

TEST_P(Mla, BitsDoNotDependOnTheNumberOfThreads) {
  for (const MlaPath path : {MlaPath::naive, MlaPath::absorbed}) {
    std::vector<float> want;
    for (const int threads : {1, 2, 3, 5}) {
      Random problem(2, 40, 100);
      Tensor out(DType::f32, {2, problem.heads, 40, problem.value});
      Operands operands;
      operands.q = problem.q.view();
      operands.k = problem.latents.view();
      operands.out = out.view();
      kernel::ThreadPool pool(threads);
      mla(causal(), problem.weights(), operands, path, pool);
      if (threads == 1) want = out.values();
      EXPECT_EQ(out.values(), want);
    }
  }
}

TEST(MlaPath, FewQueriesAreAbsorbedAndPromptsAreNot) {
  const std::vector<float> none(1);
  const MlaWeights deepseek{{none.data(), {1, 128, 128, 512}}, {none.data(), {1, 128, 128, 512}}, 64};
  EXPECT_EQ(choose_mla_path(deepseek, 1, 4096), MlaPath::absorbed);
  EXPECT_EQ(choose_mla_path(deepseek, 100, 4096), MlaPath::absorbed);
  EXPECT_EQ(choose_mla_path(deepseek, 300, 4096), MlaPath::naive);
  EXPECT_EQ(choose_mla_path(deepseek, 4096, 4096), MlaPath::naive);
}

TEST(MlaPath, MistakesAreNamed) {
  Random problem(1, 2, 5);
  Tensor out(DType::f32, {1, problem.heads, 2, problem.value});
  const auto message = [&](auto&& spoil) {
    MlaWeights weights = problem.weights();
    Operands operands;
    operands.q = problem.q.view();
    operands.k = problem.latents.view();
    operands.out = out.view();
    spoil(weights, operands);
    try {
      mla(causal(), weights, operands);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  EXPECT_THAT(message([](MlaWeights& w, Operands&) { w.rope = 3; }), HasSubstr("q has sizes"));
  EXPECT_THAT(message([](MlaWeights&, Operands& o) { o.k.size[3] = 9; }), HasSubstr("k has sizes"));
  EXPECT_THAT(message([](MlaWeights&, Operands& o) { o.v = o.k; }), HasSubstr("v is given"));
  EXPECT_THAT(message([](MlaWeights& w, Operands&) { w.w_uv.size[3] = 7; }), HasSubstr("w_uv has sizes"));
  KvCache cache(cache_of(problem.rank, problem.rope + 1));
  Operands operands;
  operands.q = problem.q.view();
  operands.out = out.view();
  const std::vector<int64_t> sequences{cache.create()};
  EXPECT_THROW(mla_decode({}, problem.weights(), operands, cache, sequences), std::invalid_argument);
}

INSTANTIATE_TEST_SUITE_P(Targets, Mla, ::testing::ValuesIn(kernel::runnable_targets()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace regard::attention

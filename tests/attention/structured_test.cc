// Merged partial results, block attention and hashed attention.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>

#include "regard/attention/attention.h"
#include "regard/attention/block_attention.h"
#include "regard/attention/lsh_attention.h"
#include "regard/attention/merge.h"
#include "regard/attention/reference.h"
#include "tests/attention/owned_gradients.h"
#include "tests/attention/problem.h"
#include "tests/attention/target_test.h"
#include "tests/support/compare.h"

namespace regard::attention {
namespace {

using kernel::DType;
using testing::is_close;
using testing::OwnedGradients;
using testing::Problem;
using testing::Sizes;
using testing::Tensor;
using testing::to_doubles;

// Attention of one head over float64 lists of keys, each with its own addition to the logit.
struct Row {
  std::vector<double> out;
  double lse = -std::numeric_limits<double>::infinity();
};
struct Key {
  std::vector<double> k, v;
  double more = 0;
};
Row attend(const std::vector<double>& q, const std::vector<Key>& keys, double scale, size_t features) {
  Row row;
  row.out.assign(features, 0.0);
  std::vector<double> logits;
  double top = row.lse;
  for (const Key& key : keys) {
    logits.push_back(scale * std::inner_product(q.begin(), q.end(), key.k.begin(), 0.0) + key.more);
    top = std::max(top, logits.back());
  }
  double sum = 0;
  for (const double x : logits) sum += std::exp(x - top);
  if (keys.empty()) return row;
  row.lse = top + std::log(sum);
  for (size_t j = 0; j < keys.size(); ++j)
    for (size_t f = 0; f < features; ++f) row.out[f] += std::exp(logits[j] - row.lse) * keys[j].v[f];
  return row;
}

// q, k and v of a problem in float64, so that gradients can be had by differences.
struct Doubles {
  Sizes sizes;
  std::vector<double> q, k, v;

  explicit Doubles(const Problem& p)
      : sizes(p.sizes), q(to_doubles(p.q)), k(to_doubles(p.k)), v(to_doubles(p.v)) {}
  std::vector<double> query(int64_t b, int64_t h, int64_t i) const {
    const auto at = q.begin() + ((b * sizes.Hq + h) * sizes.Lq + i) * sizes.Dk;
    return {at, at + sizes.Dk};
  }
  Key key(int64_t b, int64_t h, int64_t j) const {
    const int64_t row = (b * sizes.Hkv + h / (sizes.Hq / sizes.Hkv)) * sizes.Lk + j;
    return {{k.begin() + row * sizes.Dk, k.begin() + (row + 1) * sizes.Dk},
            {v.begin() + row * sizes.Dv, v.begin() + (row + 1) * sizes.Dv}};
  }
  double scale() const { return 1 / std::sqrt(static_cast<double>(sizes.Dk)); }
};

using Form = std::function<Row(const Doubles&, int64_t b, int64_t h, int64_t i)>;

struct Whole {
  std::vector<double> out, lse;
};
Whole whole(const Doubles& d, const Form& form) {
  Whole all;
  for (int64_t b = 0; b < d.sizes.B; ++b)
    for (int64_t h = 0; h < d.sizes.Hq; ++h)
      for (int64_t i = 0; i < d.sizes.Lq; ++i) {
        const Row row = form(d, b, h, i);
        all.out.insert(all.out.end(), row.out.begin(), row.out.end());
        all.lse.push_back(row.lse);
      }
  return all;
}

std::vector<double> differences(Doubles& d, std::vector<double>& input, const Form& form,
                                const std::vector<double>& grad_out, const std::vector<double>& grad_lse) {
  const auto loss = [&] {
    const Whole all = whole(d, form);
    double sum = std::inner_product(all.out.begin(), all.out.end(), grad_out.begin(), 0.0);
    for (size_t i = 0; i < all.lse.size(); ++i)
      if (std::isfinite(all.lse[i])) sum += all.lse[i] * grad_lse[i];
    return sum;
  };
  std::vector<double> slopes;
  for (double& x : input) {
    const double middle = x;
    x = middle + 1e-5;
    const double high = loss();
    x = middle - 1e-5;
    const double low = loss();
    x = middle;
    slopes.push_back((high - low) / 2e-5);
  }
  return slopes;
}

const testing::Bound kBound = testing::float32_bound(6);

class Merge : public testing::EachTarget {};

// B1: whatever the split, whatever the grouping.
TEST_P(Merge, PartsOfTheKeysMakeTheWhole) {
  Problem problem({.B = 2, .Hq = 2, .Hkv = 1, .Lq = 5, .Lk = 40, .Dk = 8, .Dv = 6}, 1);
  const Reference plain = reference(problem.spec, problem.operands());
  const auto part = [&](int64_t begin, int64_t end, Tensor& out, Tensor& lse) {
    Operands call = problem.operands();
    const auto narrow = [&](Tensor& tensor) {
      View<float> view = tensor.as<float>();
      view.data = view.at(0, 0, begin);
      view.size[2] = end - begin;
      return view;
    };
    call.k = narrow(problem.k);
    call.v = narrow(problem.v);
    call.out = out.view();
    call.lse = lse.as<float>();
    attention(problem.spec, call);
  };
  const auto results = [&](int64_t count) {
    return std::pair(std::vector<Tensor>(count, Tensor(DType::f32, problem.out.size())),
                     std::vector<Tensor>(count, Tensor(DType::f32, problem.lse.size())));
  };
  for (const std::vector<int64_t>& ends :
       {std::vector<int64_t>{40}, {13, 40}, {1, 1, 39, 40}, {0, 8, 16, 40}}) {
    auto [outs, lses] = results(static_cast<int64_t>(ends.size()));
    std::vector<PartialResult> parts;
    for (size_t n = 0; n < ends.size(); ++n) {
      part(n == 0 ? 0 : ends[n - 1], ends[n], outs[n], lses[n]);
      parts.push_back({outs[n].as<float>(), lses[n].as<float>()});
    }
    merge(parts, problem.out.as<float>(), problem.lse.as<float>());
    EXPECT_TRUE(is_close(problem.out.values(), plain.out, kBound));
    EXPECT_TRUE(is_close(problem.lse.values(), plain.lse, kBound));
    // The first two first, then the rest.
    if (parts.size() < 3) continue;
    Tensor out(DType::f32, problem.out.size());
    Tensor lse(DType::f32, problem.lse.size());
    merge(std::span(parts).first(2), out.as<float>(), lse.as<float>());
    parts[1] = {out.as<float>(), lse.as<float>()};
    merge(std::span(parts).subspan(1), problem.out.as<float>(), problem.lse.as<float>());
    EXPECT_TRUE(is_close(problem.out.values(), plain.out, kBound));
  }
}

TEST_P(Merge, PartsWithoutKeysCountNothingAndNaNStays) {
  const kernel::Extents size{1, 1, 3, 2};
  Tensor a(DType::f32, size);
  Tensor b(DType::f32, size);
  Tensor la(DType::f32, {1, 1, 3, 1});
  Tensor lb(DType::f32, {1, 1, 3, 1});
  a.fill(2);
  b.fill(0);
  la.fill(-100);
  lb.fill(-std::numeric_limits<float>::infinity());
  la.set(0, 0, 1, 0, -std::numeric_limits<float>::infinity());
  la.set(0, 0, 2, 0, std::numeric_limits<float>::quiet_NaN());
  Tensor out(DType::f32, size);
  Tensor lse(DType::f32, {1, 1, 3, 1});
  const std::vector<PartialResult> parts = {{b.as<float>(), lb.as<float>()}, {a.as<float>(), la.as<float>()}};
  merge(parts, out.as<float>(), lse.as<float>());
  EXPECT_EQ(out.get(0, 0, 0, 1), 2.0F);
  EXPECT_EQ(lse.get(0, 0, 0, 0), -100.0F);
  EXPECT_EQ(out.get(0, 0, 1, 1), 0.0F);
  EXPECT_EQ(lse.get(0, 0, 1, 0), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(out.get(0, 0, 2, 0)) && std::isnan(lse.get(0, 0, 2, 0)));
  EXPECT_THROW(merge({}, out.as<float>(), lse.as<float>()), std::invalid_argument);
}

INSTANTIATE_TEST_SUITE_P(Targets, Merge, ::testing::ValuesIn(kernel::runnable_targets()),
                         [](const auto& info) { return info.param; });

// The definition, key by key.
Form block_form(const BlockAttentionOptions& options) {
  return [options](const Doubles& d, int64_t b, int64_t h, int64_t i) {
    std::vector<Key> keys;
    const int64_t L = d.sizes.Lk;
    for (int64_t begin = 0; begin < L; begin += options.block) {
      const int64_t end = std::min(begin + options.block, L);
      if (i >= begin && i < end) {
        for (int64_t j = begin; j < (options.causal ? i + 1 : end); ++j) keys.push_back(d.key(b, h, j));
      } else if (!options.causal || end <= i) {
        Key mean = d.key(b, h, begin);
        for (int64_t j = begin + 1; j < end; ++j) {
          const Key key = d.key(b, h, j);
          for (size_t f = 0; f < mean.k.size(); ++f) mean.k[f] += key.k[f];
          for (size_t f = 0; f < mean.v.size(); ++f) mean.v[f] += key.v[f];
        }
        for (double& x : mean.k) x /= static_cast<double>(end - begin);
        for (double& x : mean.v) x /= static_cast<double>(end - begin);
        mean.more = std::log(static_cast<double>(end - begin));
        keys.push_back(mean);
      }
    }
    return attend(d.query(b, h, i), keys, d.scale(), static_cast<size_t>(d.sizes.Dv));
  };
}

class BlockAttention : public testing::EachTarget {};

TEST_P(BlockAttention, EqualsItsDefinitionAndItsGradients) {
  for (const auto& [length, block] : {std::pair<int64_t, int64_t>{13, 4}, {12, 4}, {9, 1}, {5, 8}}) {
    for (const bool causal : {false, true}) {
      Problem problem({.B = 2, .Hq = 2, .Hkv = 1, .Lq = length, .Lk = length, .Dk = 3, .Dv = 2}, 2);
      const BlockAttentionOptions options{block, causal, {}};
      const Operands call = problem.operands();
      block_attention(options, call);
      Doubles doubles(problem);
      const Form form = block_form(options);
      const Whole plain = whole(doubles, form);
      EXPECT_TRUE(is_close(problem.out.values(), plain.out, kBound)) << length << " " << block << causal;
      EXPECT_TRUE(is_close(problem.lse.values(), plain.lse, kBound));
      Tensor grad_out(DType::f32, problem.out.size());
      Tensor grad_lse(DType::f32, problem.lse.size());
      grad_out.fill_normal(problem.random);
      grad_lse.fill_normal(problem.random);
      OwnedGradients grads(call);
      block_attention_backward(options, call, {grad_out.view(), grad_lse.as<const float>()}, grads.views());
      const auto expect = [&](const Tensor& actual, std::vector<double>& input) {
        EXPECT_TRUE(is_close(actual.values(),
                             differences(doubles, input, form, to_doubles(grad_out), to_doubles(grad_lse)),
                             {3e-6, 6e-6}, 0.1))
            << length << " " << block << causal;
      };
      expect(grads.q, doubles.q);
      expect(grads.k, doubles.k);
      expect(grads.v, doubles.v);
    }
  }
}

TEST_P(BlockAttention, WithKeysConstantInsideBlocksItIsFullAttention) {
  Problem problem({.B = 1, .Hq = 2, .Hkv = 2, .Lq = 70, .Lk = 70, .Dk = 8, .Dv = 8}, 3);
  for (int64_t h = 0; h < 2; ++h)
    for (int64_t j = 0; j < 70; ++j)
      for (int64_t d = 0; d < 8; ++d) problem.k.set(0, h, j, d, problem.k.get(0, h, j / 16 * 16, d));
  block_attention({16, false, {}}, problem.operands());
  EXPECT_TRUE(is_close(problem.out.values(), reference({}, problem.operands()).out, kBound));
}

TEST_P(BlockAttention, OneBlockIsFullAttention) {
  Problem problem({.B = 1, .Hq = 2, .Hkv = 1, .Lq = 37, .Lk = 37, .Dk = 8, .Dv = 5}, 4);
  block_attention({64, false, {}}, problem.operands());
  EXPECT_TRUE(is_close(problem.out.values(), reference({}, problem.operands()).out, kBound));
  Spec causal;
  causal.mask = Mask::causal(Align::top_left);
  block_attention({37, true, {}}, problem.operands());
  EXPECT_TRUE(is_close(problem.out.values(), reference(causal, problem.operands()).out, kBound));
}

// The article's case, 16 blocks at L = 1024; nothing of the future reaches a row, not even through a mean.
TEST_P(BlockAttention, CausalRowsDoNotDependOnTheFuture) {
  Problem problem({.B = 1, .Hq = 1, .Hkv = 1, .Lq = 1024, .Lk = 1024, .Dk = 16, .Dv = 16}, 5);
  const BlockAttentionOptions options{64, true, {}};
  block_attention(options, problem.operands());
  const std::vector<float> before = problem.out.values();
  for (int64_t j = 700; j < 1024; ++j)
    for (int64_t d = 0; d < 16; ++d) {
      problem.k.set(0, 0, j, d, 3.0F);
      problem.v.set(0, 0, j, d, std::numeric_limits<float>::infinity());
    }
  block_attention(options, problem.operands());
  const std::vector<float> after = problem.out.values();
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 700 * 16, after.begin()));
  EXPECT_NE(before[700 * 16], after[700 * 16]);
}

TEST_P(BlockAttention, BitsDoNotDependOnTheNumberOfThreads) {
  std::vector<float> first;
  for (const int threads : {1, 2, 3, 5}) {
    Problem problem({.B = 2, .Hq = 2, .Hkv = 2, .Lq = 150, .Lk = 150, .Dk = 8, .Dv = 8}, 6);
    kernel::ThreadPool pool(threads);
    block_attention({32, false, {}}, problem.operands(), pool);
    if (first.empty()) first = problem.out.values();
    EXPECT_EQ(problem.out.values(), first);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, BlockAttention, ::testing::ValuesIn(kernel::runnable_targets()),
                         [](const auto& info) { return info.param; });

TEST(BlockAttentionCheck, NamesWhatIsNotAllowed) {
  Problem problem({.Lq = 4, .Lk = 4, .Dk = 2, .Dv = 2}, 7);
  EXPECT_THROW(block_attention({0, false, {}}, problem.operands()), std::invalid_argument);
  Problem cross({.Lq = 4, .Lk = 5, .Dk = 2, .Dv = 2}, 7);
  EXPECT_THROW(block_attention({2, false, {}}, cross.operands()), std::invalid_argument);
}

// The rounds' keys, by their hashes: an own and a previous chunk of rows sorted by bucket.
Form lsh_form(const LshOptions& options, Problem& problem) {
  std::vector<std::vector<int32_t>> hashes;
  for (int64_t n = 0; n < options.rounds; ++n)
    hashes.push_back(lsh_buckets(problem.q.as<const float>(), options.buckets, options.seed, n));
  return [options, hashes](const Doubles& d, int64_t b, int64_t h, int64_t i) {
    const int64_t L = d.sizes.Lq;
    const int64_t first = (b * d.sizes.Hq + h) * L;
    std::vector<Key> keys;
    for (const std::vector<int32_t>& hash : hashes) {
      std::vector<int64_t> order(L);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](int64_t x, int64_t y) { return hash[first + x] < hash[first + y]; });
      std::vector<int64_t> place(L);
      for (int64_t at = 0; at < L; ++at) place[order[at]] = at;
      for (int64_t j = 0; j < L; ++j) {
        const int64_t chunks = place[i] / options.chunk - place[j] / options.chunk;
        if (j == i || hash[first + j] != hash[first + i] || chunks < 0 || chunks > 1) continue;
        if (options.causal && j > i) continue;
        Key key = d.key(b, h, j);
        key.k = d.query(b, h, j);
        double norm = 0;
        for (const double x : key.k) norm += x * x;
        for (double& x : key.k) x /= std::sqrt(norm);
        keys.push_back(key);
      }
    }
    Row row = attend(d.query(b, h, i), keys, d.scale(), static_cast<size_t>(d.sizes.Dv));
    if (keys.empty()) row.out = d.key(b, h, i).v;
    return row;
  };
}

class LshAttention : public testing::EachTarget {};

TEST_P(LshAttention, EqualsItsDefinitionAndItsGradients) {
  for (const bool causal : {false, true}) {
    for (const LshOptions& options : {LshOptions{4, 2, 3, causal, 1, {}}, LshOptions{2, 1, 5, causal, 2, {}},
                                      LshOptions{8, 3, 4, causal, 3, {}}}) {
      Problem problem({.B = 2, .Hq = 2, .Hkv = 2, .Lq = 14, .Lk = 14, .Dk = 3, .Dv = 2}, 8);
      const Operands call = problem.operands();
      lsh_attention(options, call);
      Doubles doubles(problem);
      const Form form = lsh_form(options, problem);
      const Whole plain = whole(doubles, form);
      EXPECT_TRUE(is_close(problem.out.values(), plain.out, kBound)) << options.buckets << causal;
      EXPECT_TRUE(is_close(problem.lse.values(), plain.lse, kBound));
      Tensor grad_out(DType::f32, problem.out.size());
      Tensor grad_lse(DType::f32, problem.lse.size());
      grad_out.fill_normal(problem.random);
      grad_lse.fill_normal(problem.random);
      OwnedGradients grads(call);
      Gradients wanted = grads.views();
      wanted.k = {};
      lsh_attention_backward(options, call, {grad_out.view(), grad_lse.as<const float>()}, wanted);
      const auto expect = [&](const Tensor& actual, std::vector<double>& input) {
        EXPECT_TRUE(is_close(actual.values(),
                             differences(doubles, input, form, to_doubles(grad_out), to_doubles(grad_lse)),
                             {3e-6, 6e-6}, 0.1))
            << options.buckets << causal;
      };
      expect(grads.q, doubles.q);
      expect(grads.v, doubles.v);
    }
  }
}

// One bucket: full attention with shared queries and keys, a row not seeing itself.
TEST_P(LshAttention, OneBucketIsFullAttentionWithoutTheRowItself) {
  Problem problem({.B = 1, .Hq = 2, .Hkv = 2, .Lq = 40, .Lk = 40, .Dk = 8, .Dv = 8}, 9);
  Problem shared({.B = 1, .Hq = 2, .Hkv = 2, .Lq = 40, .Lk = 40, .Dk = 8, .Dv = 8}, 9);
  for (int64_t h = 0; h < 2; ++h)
    for (int64_t j = 0; j < 40; ++j) {
      double squares = 0;
      for (int64_t d = 0; d < 8; ++d) squares += std::pow(problem.q.get(0, h, j, d), 2);
      for (int64_t d = 0; d < 8; ++d)
        shared.k.set(0, h, j, d, static_cast<float>(problem.q.get(0, h, j, d) / std::sqrt(squares)));
    }
  shared.add_dense_mask({1, 1, 40, 40}, 1.0);
  for (int64_t i = 0; i < 40; ++i) shared.mask[i * 41] = 0;
  lsh_attention({1, 3, 64, false, 0, {}}, problem.operands());
  const Reference plain = reference(shared.spec, shared.operands());
  EXPECT_TRUE(is_close(problem.out.values(), plain.out, kBound));
}

TEST_P(LshAttention, BitsDoNotDependOnTheNumberOfThreads) {
  std::vector<float> first;
  for (const int threads : {1, 2, 3, 5}) {
    Problem problem({.B = 1, .Hq = 2, .Hkv = 2, .Lq = 150, .Lk = 150, .Dk = 8, .Dv = 8}, 10);
    kernel::ThreadPool pool(threads);
    lsh_attention({8, 2, 16, true, 5, {}}, problem.operands(), pool);
    if (first.empty()) first = problem.out.values();
    EXPECT_EQ(problem.out.values(), first);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, LshAttention, ::testing::ValuesIn(kernel::runnable_targets()),
                         [](const auto& info) { return info.param; });

// The closer two directions, the more often they share a bucket.
TEST(LshBuckets, CollisionsGrowWithTheCosine) {
  std::mt19937_64 random(1);
  std::normal_distribution<float> draw;
  const auto collisions = [&](float cosine) {
    int64_t equal = 0;
    for (int64_t n = 0; n < 400; ++n) {
      Tensor pair(DType::f32, {1, 1, 2, 16});
      pair.fill_normal(random);
      double a = 0;
      double ab = 0;
      for (int64_t d = 0; d < 16; ++d) {
        a += std::pow(pair.get(0, 0, 0, d), 2);
        ab += pair.get(0, 0, 0, d) * pair.get(0, 0, 1, d);
      }
      double rest = 0;
      std::vector<double> away(16);
      for (int64_t d = 0; d < 16; ++d) {
        away[d] = pair.get(0, 0, 1, d) - ab / a * pair.get(0, 0, 0, d);
        rest += away[d] * away[d];
      }
      for (int64_t d = 0; d < 16; ++d)
        pair.set(0, 0, 1, d,
                 static_cast<float>(cosine * pair.get(0, 0, 0, d) / std::sqrt(a) +
                                    std::sqrt(1 - cosine * cosine) * away[d] / std::sqrt(rest)));
      const std::vector<int32_t> buckets = lsh_buckets(pair.as<const float>(), 8, 11, n);
      equal += buckets[0] == buckets[1] ? 1 : 0;
    }
    return equal;
  };
  const int64_t far = collisions(0.0F);
  const int64_t near = collisions(0.7F);
  const int64_t nearest = collisions(0.97F);
  EXPECT_LT(far + 40, near);
  EXPECT_LT(near + 40, nearest);
}

TEST(LshBuckets, DependOnTheDirectionAloneAndStayInRange) {
  Tensor x(DType::f32, {1, 1, 200, 8});
  std::mt19937_64 random(2);
  x.fill_normal(random);
  const std::vector<int32_t> buckets = lsh_buckets(x.as<const float>(), 6, 3, 0);
  EXPECT_EQ(std::set<int32_t>(buckets.begin(), buckets.end()), (std::set<int32_t>{0, 1, 2, 3, 4, 5}));
  for (int64_t i = 0; i < 200; ++i)
    for (int64_t d = 0; d < 8; ++d) x.set(0, 0, i, d, 2 * x.get(0, 0, i, d));
  EXPECT_EQ(lsh_buckets(x.as<const float>(), 6, 3, 0), buckets);
  EXPECT_NE(lsh_buckets(x.as<const float>(), 6, 3, 1), buckets);
}

TEST(LshAttentionCheck, NamesWhatIsNotAllowed) {
  Problem problem({.Lq = 4, .Lk = 4, .Dk = 2, .Dv = 2}, 11);
  EXPECT_THROW(lsh_attention({3, 1, 4, false, 0, {}}, problem.operands()), std::invalid_argument);
  EXPECT_THROW(lsh_attention({4, 0, 4, false, 0, {}}, problem.operands()), std::invalid_argument);
  EXPECT_THROW(lsh_attention({4, 1, 0, false, 0, {}}, problem.operands()), std::invalid_argument);
}

}  // namespace
}  // namespace regard::attention

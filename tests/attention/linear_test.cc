#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "regard/attention/linear.h"
#include "tests/attention/linear_problem.h"
#include "tests/attention/target_test.h"
#include "tests/support/compare.h"

// The kernels of linear attention against its recurrence in float64, on every instruction set.
namespace regard::attention {
namespace {

using kernel::DType;
using testing::Bound;
using testing::doubles_of;
using testing::Gate;
using testing::is_close;
using testing::LinearCase;
using testing::LinearProblem;
using testing::Sizes;
using testing::Tensor;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Sums of some hundred products, and their ratio.
constexpr Bound kBound{2e-6, 1e-5};

class Linear : public testing::EachTarget {};

void run(LinearProblem& problem, int threads = 1) {
  kernel::ThreadPool pool(threads);
  linear_attention(problem.spec, problem.operands(), pool);
}

void expect_reference(LinearProblem& problem, Bound bound = kBound) {
  const LinearReference expected = linear_reference(problem.spec, problem.arrays());
  EXPECT_TRUE(is_close(problem.out.values(), expected.out, bound));
  EXPECT_TRUE(is_close(problem.state_out.values(), expected.state, kBound));
  if (problem.spec.denominator != Denominator::none) {
    EXPECT_TRUE(is_close(problem.denominators.values(), expected.denominators, kBound));
    EXPECT_TRUE(is_close(problem.norm_out.values(), expected.norm, kBound));
  }
}

TEST_P(Linear, RandomCallsEqualTheRecurrence) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 150; ++i) {
    const LinearCase c = testing::random_linear_case(random);
    SCOPED_TRACE(c.to_string() + " case " + std::to_string(i));
    LinearProblem problem(c, static_cast<uint64_t>(i));
    run(problem);
    expect_reference(problem);
    if (HasFailure()) return;
  }
}

TEST_P(Linear, PositionByPositionEqualsTheRecurrence) {
  std::mt19937_64 random(6);
  for (int i = 0; i < 80; ++i) {
    LinearCase c = testing::random_linear_case(random);
    if (!c.spec.causal) continue;
    c.spec.form = LinearForm::recurrent;
    SCOPED_TRACE(c.to_string());
    LinearProblem problem(c, static_cast<uint64_t>(i));
    run(problem);
    expect_reference(problem);
    if (HasFailure()) return;
  }
}

TEST_P(Linear, BitsDoNotDependOnTheNumberOfThreads) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 40; ++i) {
    LinearCase c = testing::random_linear_case(random);
    c.sizes.Lk = c.sizes.Lq = 150;
    c.spec.chunk = 16;
    SCOPED_TRACE(c.to_string());
    LinearProblem one(c, static_cast<uint64_t>(i));
    run(one);
    for (const int threads : {2, 3, 5}) {
      LinearProblem other(c, static_cast<uint64_t>(i));
      run(other, threads);
      EXPECT_EQ(one.out.values(), other.out.values()) << threads;
      EXPECT_EQ(one.state_out.values(), other.state_out.values()) << threads;
    }
    if (HasFailure()) return;
  }
}

TEST_P(Linear, ResultsInSixteenBitsAreRoundedOnce) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    LinearCase c;
    c.sizes = {1, 2, 1, 90, 90, 24, 33};
    c.spec.feature = FeatureMap::elu1;
    c.spec.denominator = Denominator::add;
    c.dtype = dtype;
    LinearProblem problem(c, 3);
    run(problem);
    const double half = dtype == DType::bf16 ? std::ldexp(1.0, -9) : std::ldexp(1.0, -12);
    expect_reference(problem, {2 * half, 4 * half});
  }
}

// What decoding is: any split of a sequence, the state handed on.
TEST_P(Linear, AnySplitGivesTheSameRowsAndState) {
  std::mt19937_64 random(8);
  for (int i = 0; i < 30; ++i) {
    LinearCase c = testing::random_linear_case(random);
    c.spec.causal = true;
    c.sizes.Lq = c.sizes.Lk = 83;
    c.lengths = false;
    c.layout = testing::Layout::contiguous;
    SCOPED_TRACE(c.to_string());
    LinearProblem whole(c, static_cast<uint64_t>(i));
    const LinearReference expected = linear_reference(whole.spec, whole.arrays());
    LinearOperands call = whole.operands();
    const bool divides = whole.spec.denominator != Denominator::none;
    const auto part = [](auto view, int64_t begin, int64_t count) {
      if (view.data == nullptr || view.size[2] == 1) return view;
      using V = decltype(view);
      if constexpr (std::is_same_v<V, View<const float>> || std::is_same_v<V, View<float>>) {
        view.data += begin * view.stride[2];
      } else {
        using Byte = std::conditional_t<std::is_same_v<V, ConstAnyView>, const std::byte, std::byte>;
        view.data = static_cast<Byte*>(view.data) + begin * view.stride[2] * kernel::bytes(view.dtype);
      }
      view.size[2] = count;
      return view;
    };
    int64_t begin = 0;
    for (const int64_t count : {1, 1, 30, 2, 5, 44}) {
      LinearOperands some = call;
      some.q = part(call.q, begin, count);
      some.k = part(call.k, begin, count);
      some.v = part(call.v, begin, count);
      some.out = part(call.out, begin, count);
      some.log_decay = part(call.log_decay, begin, count);
      some.beta = part(call.beta, begin, count);
      some.denominators = part(call.denominators, begin, count);
      if (begin > 0) {
        some.state = call.state_out;  // in place
        if (divides) some.norm = call.norm_out;
      }
      linear_attention(whole.spec, some);
      begin += count;
    }
    ASSERT_EQ(begin, 83);
    EXPECT_TRUE(is_close(whole.out.values(), expected.out, kBound));
    EXPECT_TRUE(is_close(whole.state_out.values(), expected.state, kBound));
    if (HasFailure()) return;
  }
}

// A position may not look ahead: whatever is put behind it, its row has the same bits.
TEST_P(Linear, ACausalRowDoesNotDependOnWhatFollows) {
  for (const Gate gate : {Gate::none, Gate::head, Gate::token, Gate::feature})
    for (const bool delta : {false, true})
      for (const int64_t from : {1, 15, 16, 17, 40, 63, 64, 70}) {
        LinearCase c;
        c.sizes = {1, 2, 1, 100, 100, 19, 21};
        c.gate = gate;
        c.delta = delta;
        SCOPED_TRACE(c.to_string() + " from " + std::to_string(from));
        LinearProblem clean(c, 4);
        run(clean);
        LinearProblem poisoned(c, 4);
        for (int64_t i = from; i < 100; ++i) {
          poisoned.q.set(0, 0, i, i % 19, kNan);
          poisoned.k.set(0, 0, i, i % 19, i % 2 == 0 ? kNan : std::numeric_limits<float>::infinity());
          poisoned.v.set(0, 0, i, i % 21, kNan);
          if (gate == Gate::token || gate == Gate::feature) poisoned.log_decay.set(0, 0, i, 0, kNan);
          if (delta) poisoned.beta.set(0, 0, i, 0, kNan);
        }
        run(poisoned);
        for (int64_t h = 0; h < 2; ++h)
          for (int64_t i = 0; i < 100; ++i)
            for (int64_t f = 0; f < 21; ++f) {
              if (i < from) {
                ASSERT_NEAR(clean.out.get(0, h, i, f), poisoned.out.get(0, h, i, f), 1e-4) << i;
              } else if (h == 0) {
                ASSERT_TRUE(std::isnan(poisoned.out.get(0, h, i, f))) << i;
              }
            }
      }
}

TEST_P(Linear, PaddingHasNoInfluence) {
  for (const bool causal : {false, true}) {
    LinearCase c;
    c.sizes = {2, 2, 1, 75, 75, 17, 9};
    c.spec.causal = causal;
    c.spec.feature = FeatureMap::elu1;
    c.spec.denominator = Denominator::add;
    LinearProblem problem(c, 9);
    problem.lengths = {30, 70};
    LinearProblem clean = problem;
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t i = problem.lengths[static_cast<size_t>(b)]; i < 75; ++i) {
        problem.k.set(b, 0, i, 3, kNan);
        problem.v.set(b, 0, i, 3, kNan);
      }
    run(problem);
    run(clean);
    EXPECT_EQ(problem.out.values(), clean.out.values());
    EXPECT_EQ(problem.state_out.values(), clean.state_out.values());
    expect_reference(clean);
  }
}

TEST_P(Linear, ARowThatSeesNothingIsZero) {
  LinearCase c;
  c.sizes = {1, 1, 1, 5, 0, 4, 3};
  c.spec.causal = false;
  c.spec.feature = FeatureMap::relu;
  c.spec.denominator = Denominator::add;
  c.spec.epsilon = 0;
  LinearProblem problem(c, 1);
  problem.out.fill(7);
  run(problem);
  EXPECT_EQ(problem.out.values(), std::vector<float>(15, 0.0F));
  EXPECT_EQ(problem.state_out.values(), std::vector<float>(12, 0.0F));
  // A query without a positive feature reads nothing.
  c.sizes.Lk = 5;
  LinearProblem negative(c, 2);
  for (int64_t f = 0; f < 4; ++f) negative.q.set(0, 0, 2, f, -1);
  run(negative);
  for (int64_t f = 0; f < 3; ++f) EXPECT_EQ(negative.out.get(0, 0, 2, f), 0.0F);
}

TEST_P(Linear, EmptySizes) {
  for (const Sizes& sizes : {Sizes{0, 1, 1, 3, 3, 4, 4}, Sizes{1, 1, 1, 0, 0, 4, 4},
                             Sizes{1, 2, 1, 3, 3, 0, 4}, Sizes{1, 2, 1, 3, 3, 4, 0}}) {
    LinearCase c;
    c.sizes = sizes;
    c.state = sizes.B > 0;
    for (const LinearForm form : {LinearForm::recurrent, LinearForm::chunked}) {
      c.spec.form = form;
      LinearProblem problem(c, 1);
      run(problem);
      expect_reference(problem);
    }
  }
}

// A decay of -infinity begins a new document.
TEST_P(Linear, ALogDecayOfMinusInfinityForgetsEverything) {
  for (const Gate gate : {Gate::token, Gate::feature}) {
    LinearCase c;
    c.sizes = {1, 1, 1, 70, 70, 9, 8};
    c.gate = gate;
    LinearProblem problem(c, 2);
    for (const int64_t at : {0, 5, 40, 66})
      for (int64_t f = 0; f < problem.log_decay.size()[3]; ++f)
        problem.log_decay.set(0, 0, at, f, -std::numeric_limits<float>::infinity());
    run(problem);
    expect_reference(problem);
    for (int64_t f = 0; f < 8; ++f) {  // one key is all that row 40 sees
      double sum = 0;
      for (int64_t d = 0; d < 9; ++d) sum += problem.q.get(0, 0, 40, d) * problem.k.get(0, 0, 40, d);
      EXPECT_NEAR(problem.out.get(0, 0, 40, f), sum * problem.v.get(0, 0, 40, f), 1e-5);
    }
  }
}

TEST_P(Linear, WeightsOfADenominatorAddUpToOneAndMakeTheOutput) {
  for (const bool causal : {false, true}) {
    LinearCase c;
    c.sizes = {2, 2, 1, 20, 20, 6, 5};
    c.spec.causal = causal;
    c.spec.feature = FeatureMap::elu1;
    c.spec.denominator = Denominator::add;
    c.spec.epsilon = 0;
    LinearProblem problem(c, 3);
    run(problem);
    const std::vector<double> weights = linear_weights(problem.spec, problem.operands(), 1, 1);
    for (int64_t i = 0; i < 20; ++i) {
      double sum = 0;
      double out = 0;
      for (int64_t j = 0; j < 20; ++j) {
        const double w = weights[static_cast<size_t>(i * 20 + j)];
        EXPECT_GE(w, 0);
        if (causal && j > i) {
          EXPECT_EQ(w, 0);
        }
        sum += w;
        out += w * problem.v.get(1, 0, j, 2);
      }
      EXPECT_NEAR(sum, 1, 1e-12);
      EXPECT_NEAR(out, problem.out.get(1, 1, i, 2), 1e-5);
    }
  }
}

TEST(LinearCheck, NamesTheOperandItsValueAndWhatIsAllowed) {
  const auto message = [](auto&& change) {
    LinearCase c;
    c.sizes = {1, 2, 1, 5, 5, 4, 3};
    LinearProblem problem(c, 1);
    LinearOperands call = problem.operands();
    change(problem.spec, call);
    try {
      linear_attention(problem.spec, call);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const auto has = [](const std::string& text, std::initializer_list<const char*> words) {
    for (const char* word : words) {
      if (text.find(word) == std::string::npos)
        return ::testing::AssertionFailure() << "'" << text << "' lacks '" << word << "'";
    }
    return ::testing::AssertionSuccess();
  };
  const float number = 0;
  using S = LinearSpec;
  using O = LinearOperands;
  EXPECT_TRUE(has(message([](S&, O& o) { o.k.size[1] = 3; }), {"k has 3 heads", "allowed"}));
  EXPECT_TRUE(has(message([](S&, O& o) { o.q.size[2] = 4; }), {"q has 4 rows and k 5", "causal"}));
  EXPECT_TRUE(has(message([](S& s, O&) { s.epsilon = -1; }), {"epsilon is -1", "at least 0"}));
  EXPECT_TRUE(has(message([](S& s, O&) { s.scale = NAN; }), {"scale is", "finite"}));
  EXPECT_TRUE(has(message([](S& s, O&) { s.chunk = 65; }), {"chunk is 65", "2 to 64"}));
  EXPECT_TRUE(
      has(message([](S& s, O&) { s.causal = false, s.form = LinearForm::recurrent; }), {"recurrent"}));
  EXPECT_TRUE(has(message([&](S& s, O& o) {
                    s.causal = false, o.log_decay = {&number, {1, 1, 1, 1}};
                  }),
                  {"log_decay", "causal"}));
  EXPECT_TRUE(has(message([&](S&, O& o) {
                    o.log_decay = {&number, {1, 1, 2, 1}};
                  }),
                  {"log_decay", "[1, 1, 5, 4]"}));
  EXPECT_TRUE(has(message([&](S& s, O& o) {
                    s.denominator = Denominator::add, o.beta = {&number, {1, 1, 1, 1}};
                  }),
                  {"beta", "denominator"}));
  EXPECT_TRUE(has(message([&](S&, O& o) { o.norm = {&number, {1, 1, 4, 1}}; }), {"norm", "denominator"}));
  EXPECT_TRUE(has(message([&](S&, O& o) { o.state = {&number, {1, 1, 3, 4}}; }), {"state", "[1, 1, 4, 3]"}));
  const int64_t length = 6;
  EXPECT_TRUE(has(message([&](S&, O& o) {
                    o.key_lengths = {&length, {1, 1, 1, 1}};
                  }),
                  {"key_lengths[0] is 6"}));
  EXPECT_TRUE(has(message([](S&, O& o) { o.out.stride[2] = 0; }), {"out", "stride 0"}));
  EXPECT_TRUE(has(message([](S&, O& o) { o.v.dtype = DType::bf16; }), {"v is of type bf16", "f32"}));
}

INSTANTIATE_TEST_SUITE_P(Targets, Linear, ::testing::ValuesIn(kernel::runnable_targets()));

}  // namespace
}  // namespace regard::attention

// What is told of heads in a training: entropies against a plain softmax, and the alarm's reasons.
#include "regard/lens/head_watch.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "regard/autograd/attention.h"

namespace regard::lens {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kLength = 33, kSize = 8;

// Three heads over two texts, causal.
struct Calls {
  attention::Spec spec;
  layer::AttentionCall call;

  explicit Calls(bool packed = false) {
    at::manual_seed(1);
    spec.mask = attention::Mask::causal(attention::Align::bottom_right);
    call.layer = 2;
    call.q = at::randn({2, 3, kLength, kSize});
    call.k = at::randn({2, 3, kLength, kSize});
    call.v = at::randn({2, 3, kLength, kSize});
    call.joined = at::randn({10, 3 * kSize});
    if (packed) {
      spec.mask = spec.mask & attention::Mask::segments();
      call.segments = (at::arange(kLength) / 10).to(at::kInt).unsqueeze(0).expand({2, kLength}).contiguous();
    }
  }
  std::vector<HeadState> watched() {
    call.spec = &spec;
    HeadWatch watch;
    watch.record(call);
    return watch.heads();
  }
};

TEST(HeadWatch, EntropyIsThatOfAPlainSoftmax) {
  for (const bool packed : {false, true}) {
    Calls calls(packed);
    at::Tensor visible = at::ones({kLength, kLength}, at::kBool).tril();
    if (packed)
      visible = visible & (calls.call.segments[0].unsqueeze(0) == calls.call.segments[0].unsqueeze(1));
    const std::vector<HeadState> heads = calls.watched();
    ASSERT_EQ(heads.size(), 3u);
    const at::Tensor keys = visible.sum(1).to(at::kDouble);
    const at::Tensor open = keys > 1;
    for (int64_t h = 0; h < 3; ++h) {
      const at::Tensor logits =
          at::matmul(calls.call.q.select(1, h), calls.call.k.select(1, h).transpose(1, 2)).to(at::kDouble) /
          std::sqrt(static_cast<double>(kSize));
      const at::Tensor p = at::softmax(logits.masked_fill(visible.logical_not(), -INFINITY), -1);
      const at::Tensor entropy = -at::xlogy(p, p).sum(-1);  // [2, L]
      const HeadState& head = heads[static_cast<size_t>(h)];
      EXPECT_EQ(head.layer, "layer 2");
      EXPECT_EQ(head.head, h);
      EXPECT_NEAR(head.entropy, entropy.mean().item<double>(), 1e-4);
      const at::Tensor shares = (entropy / keys.log()).index({at::indexing::Slice(), open});
      EXPECT_NEAR(head.share, shares.mean().item<double>(), 1e-4);
      EXPECT_GT(head.spread, 0.5);
    }
  }
}

TEST(HeadWatch, AUniformHeadIsToldWithItsLikelyCause) {
  Calls calls;
  calls.call.q = calls.call.q * 1e-4;
  const std::vector<HeadState> heads = calls.watched();
  for (const HeadState& head : heads) {
    EXPECT_GT(head.share, 0.999);
    EXPECT_LT(head.spread, 1e-2);
  }
  HeadHistory history{
      .step = 500, .rate = 1e-3, .peak_rate = 1e-3, .deviation = 0.001, .xavier_deviation = 0.06};
  EXPECT_THAT(*head_alarm(heads, history), HasSubstr("3 of 3 heads look at all keys alike"));
  EXPECT_THAT(*head_alarm(heads, history), HasSubstr("layer 2 head 0"));
  EXPECT_THAT(*head_alarm(heads, history), HasSubstr("Xavier"));
  history.deviation = 0.06;
  history.warmup = 1000;
  EXPECT_THAT(*head_alarm(heads, history), HasSubstr("the warm-up is not over"));
  history.warmup = 0;
  history.post_norm = true;
  EXPECT_THAT(*head_alarm(heads, history), HasSubstr("without a warm-up"));
  history.post_norm = false;
  history.rate = 1e-6;
  EXPECT_THAT(*head_alarm(heads, history), HasSubstr("too small to move them"));
}

TEST(HeadWatch, AHeadThatAddsNothingIsDead) {
  Calls calls;
  calls.call.joined.narrow(1, kSize, kSize).mul_(1e-4);
  const std::vector<HeadState> heads = calls.watched();
  EXPECT_LT(heads[1].contribution, kDeadContribution);
  EXPECT_GT(heads[0].contribution, 0.3);
  const auto alarm = head_alarm(heads, {.step = 500});
  ASSERT_TRUE(alarm);
  EXPECT_THAT(*alarm, HasSubstr("1 of 3 heads add next to nothing"));
  EXPECT_THAT(*alarm, HasSubstr("layer 2 head 1"));
}

TEST(HeadWatch, OfSeveralPassesItGivesTheMeans) {
  Calls one, two;
  two.call.q = two.call.q * 3;
  two.spec.scale = 0.7;
  one.call.spec = &one.spec;
  two.call.spec = &two.spec;
  HeadWatch watch({"encoder 0", "encoder 1", "cross 0"});
  watch.record(one.call);
  watch.record(two.call);
  const std::vector<HeadState> first = one.watched(), second = two.watched();
  ASSERT_EQ(watch.heads().size(), 3u);
  for (size_t h = 0; h < 3; ++h) {
    EXPECT_EQ(watch.heads()[h].layer, "cross 0");
    EXPECT_NEAR(watch.heads()[h].entropy, (first[h].entropy + second[h].entropy) / 2, 1e-12);
    EXPECT_NEAR(watch.heads()[h].contribution, (first[h].contribution + second[h].contribution) / 2, 1e-12);
  }
}

TEST(HeadWatch, WeightsSayTheSameAsACall) {
  Calls calls;
  calls.spec.mask = {};
  const std::vector<HeadState> want = calls.watched();
  HeadWatch watch;
  for (int64_t text = 0; text < 2; ++text) {
    const at::Tensor logits = at::matmul(calls.call.q[text], calls.call.k[text].transpose(1, 2)) /
                              std::sqrt(static_cast<double>(kSize));
    watch.record(2, logits.softmax(-1));
  }
  for (size_t h = 0; h < 3; ++h) {
    EXPECT_EQ(watch.heads()[h].layer, want[h].layer);
    EXPECT_NEAR(watch.heads()[h].entropy, want[h].entropy, 1e-4);
    EXPECT_NEAR(watch.heads()[h].share, want[h].share, 1e-4);
    EXPECT_NEAR(watch.heads()[h].spread, want[h].spread, 1e-4);
  }
}

TEST(HeadWatch, HealthyHeadsAreNotSpokenOf) {
  EXPECT_FALSE(head_alarm(Calls().watched(), {.step = 500}));
}

}  // namespace
}  // namespace regard::lens

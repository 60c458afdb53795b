// From many key and value heads to few.
#include "regard/model/pool_heads.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace regard::model {
namespace {

TEST(PoolHeads, EachHeadIsTheMeanOfItsGroup) {
  at::manual_seed(1);
  const at::Tensor old = at::randn({6 * 4, 5});  // six heads of four
  const at::Tensor made = pool_heads(old, 6, 2);
  ASSERT_EQ(made.sizes(), (std::vector<int64_t>{8, 5}));
  for (int64_t head = 0; head < 2; ++head) {
    at::Tensor mean = at::zeros({4, 5});
    for (int64_t member = 0; member < 3; ++member) mean += old.narrow(0, (head * 3 + member) * 4, 4) / 3;
    EXPECT_LE((made.narrow(0, head * 4, 4) - mean).abs().max().item<float>(), 1e-6F);
  }
  EXPECT_TRUE(at::equal(pool_heads(old, 6, 6), old));
}

TEST(PoolHeads, HeadsThatAreAlikeLoseNothing) {
  const at::Tensor one = at::randn({4, 5});
  EXPECT_LE((pool_heads(one.repeat({4, 1}), 4, 1) - one).abs().max().item<float>(), 1e-6F);
}

TEST(PoolHeads, RefusesWhatDoesNotDivide) {
  EXPECT_THROW(pool_heads(at::zeros({12, 3}), 6, 4), std::invalid_argument);
  EXPECT_THROW(pool_heads(at::zeros({10, 3}), 6, 2), std::invalid_argument);
  EXPECT_THROW(pool_heads(at::zeros({12, 3}), 6, 0), std::invalid_argument);
}

}  // namespace
}  // namespace regard::model

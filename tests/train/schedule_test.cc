#include "regard/train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

namespace regard::train {
namespace {

// The peaks of the Annotated Transformer's schedule, and of the paper's base model.
TEST(Schedule, NoamPeaksAtTheEndOfItsWarmup) {
  const auto peak = [](int64_t width, int64_t warmup) {
    const Schedule schedule{
        .kind = Schedule::Kind::noam, .rate = 1, .warmup = warmup, .steps = 100000, .width = width};
    EXPECT_LT(schedule.at(warmup - 2), schedule.at(warmup - 1));
    EXPECT_GT(schedule.at(warmup - 1), schedule.at(warmup));
    return schedule.at(warmup - 1);
  };
  EXPECT_NEAR(peak(512, 4000), 6.99e-4, 1e-6);
  EXPECT_NEAR(peak(512, 3000), 8.07e-4, 1e-6);
  EXPECT_NEAR(peak(512, 400), 2.21e-3, 1e-5);
}

TEST(Schedule, RisesAlongALineAndFallsToItsShare) {
  for (const auto kind : {Schedule::Kind::linear, Schedule::Kind::cosine}) {
    const Schedule schedule{.kind = kind, .rate = 0.5, .warmup = 10, .steps = 110, .final_share = 0.2};
    for (int64_t step = 0; step < 10; ++step)
      EXPECT_DOUBLE_EQ(schedule.at(step), 0.05 * static_cast<double>(step + 1));
    EXPECT_NEAR(schedule.at(59), 0.5 * (0.2 + 0.8 * 0.5), 1e-12);  // half way for both
    EXPECT_NEAR(schedule.at(109), 0.1, 1e-12);
    EXPECT_EQ(schedule.at(500), schedule.at(109));
    for (int64_t step = 10; step < 109; ++step) EXPECT_GT(schedule.at(step), schedule.at(step + 1));
  }
}

TEST(Schedule, InverseRootQuartersTheRateAtSixteenWarmups) {
  const Schedule schedule{.kind = Schedule::Kind::inverse_root, .rate = 1, .warmup = 10, .steps = 1000};
  EXPECT_DOUBLE_EQ(schedule.at(9), 1);
  EXPECT_DOUBLE_EQ(schedule.at(159), 0.25);
}

TEST(Schedule, WithoutWarmupTheFirstStepHasTheFullRate) {
  for (const auto kind : {Schedule::Kind::constant, Schedule::Kind::linear, Schedule::Kind::cosine}) {
    EXPECT_DOUBLE_EQ((Schedule{.kind = kind, .rate = 0.3, .steps = 100}.at(0)), 0.3);
  }
  EXPECT_TRUE(std::isfinite((Schedule{.kind = Schedule::Kind::noam, .steps = 1}.at(0))));
}

TEST(Schedule, UnknownNamesAreRefusedWithTheKnownOnes) {
  EXPECT_EQ(schedule_named("cosine"), Schedule::Kind::cosine);
  try {
    schedule_named("cosin");
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("inverse_root"), std::string::npos);
  }
}

}  // namespace
}  // namespace regard::train

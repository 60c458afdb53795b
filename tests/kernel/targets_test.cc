#include "regard/kernel/targets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <stdexcept>

#include "regard/kernel/self_check.h"

namespace regard::kernel {
namespace {

// Continuous integration shows these two lines: a target that is only compiled was not tested.
TEST(Targets, RanAndOnlyCompiled) {
  const auto runnable = runnable_targets();
  std::string ran;
  std::string compiled;
  for (const std::string& name : compiled_targets())
    (std::find(runnable.begin(), runnable.end(), name) != runnable.end() ? ran : compiled) += " " + name;
  std::cout << "SIMD targets that ran:" << ran
            << "\nSIMD targets that were only compiled:" << (compiled.empty() ? " none" : compiled) << "\n";
  EXPECT_FALSE(runnable.empty());
  for (const std::string& name : runnable) EXPECT_THAT(compiled_targets(), ::testing::Contains(name));
}

TEST(Targets, SelectForcesOneAndEmptyReturnsToTheDefault) {
  const std::string before = active_target();
  for (const std::string& name : runnable_targets()) {
    select_target(name);
    EXPECT_EQ(active_target(), name);
  }
  select_target("");
  EXPECT_EQ(active_target(), before);
}

TEST(Targets, EveryRunnableTargetPassesTheSelfCheck) {
  for (const std::string& name : runnable_targets()) {
    select_target(name);
    EXPECT_TRUE(self_check()) << name;
  }
  select_target("");
}

TEST(Targets, UnknownOrUnrunnableIsRefusedByName) {
  const std::string before = active_target();
  std::vector<std::string> refused{"AVX9", "avx2"};
  for (const std::string& name : compiled_targets())
    if (const auto runnable = runnable_targets();
        std::find(runnable.begin(), runnable.end(), name) == runnable.end())
      refused.push_back(name);
  for (const std::string& name : refused) {
    try {
      select_target(name);
      ADD_FAILURE() << name << " was accepted";
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(name));
      EXPECT_THAT(error.what(), ::testing::HasSubstr(runnable_targets().front()));
    }
  }
  EXPECT_EQ(active_target(), before);
}

TEST(Targets, EnvironmentVariableChoosesTheDefault) {
  const char* set = std::getenv("REGARD_ISA");
  const std::string before = set != nullptr ? set : "";
  setenv("REGARD_ISA", runnable_targets().back().c_str(), 1);
  select_target("");
  EXPECT_EQ(active_target(), runnable_targets().back());
  setenv("REGARD_ISA", "Z80", 1);
  EXPECT_THROW(select_target(""), std::invalid_argument);
  if (set != nullptr)
    setenv("REGARD_ISA", before.c_str(), 1);
  else
    unsetenv("REGARD_ISA");
  select_target("");
}

}  // namespace
}  // namespace regard::kernel

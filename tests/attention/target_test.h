#pragma once

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "regard/kernel/targets.h"

// Tests that run once for each instruction set that this machine can run, with that one forced.
namespace regard::testing {

template <class Base>
class OnTarget : public Base {
 protected:
  void use(const std::string& target) {
    kernel::select_target(target);
    ASSERT_EQ(kernel::active_target(), target);
  }
  ~OnTarget() override { kernel::select_target(""); }
};

// The tests of a suite that takes nothing but the target.
class EachTarget : public OnTarget<::testing::TestWithParam<std::string>> {
 protected:
  void SetUp() override { use(GetParam()); }
};

// The tests of a suite that takes a target and the name of a case.
class EachTargetAndCase : public OnTarget<::testing::TestWithParam<std::tuple<std::string, std::string>>> {
 protected:
  void SetUp() override { use(std::get<0>(GetParam())); }
};

}  // namespace regard::testing

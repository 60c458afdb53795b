#pragma once

#include <gtest/gtest.h>

#include <string>

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

}  // namespace regard::testing

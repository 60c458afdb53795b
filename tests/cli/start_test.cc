// How the program starts: it lets libtorch's threads wait without spinning, and nothing else changes by that.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"

namespace regard::cli::testing {
namespace {

using ::testing::HasSubstr;

TEST(Start, ThreadsWaitWithoutSpinning) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers want to start first";
#endif
  const Outcome outcome = shell(
      R"(unset OMP_WAIT_POLICY; OMP_DISPLAY_ENV=true "$REGARD" --version 2>&1 | grep -c "OMP_WAIT_POLICY = 'PASSIVE'")");
  EXPECT_EQ(outcome.out, "1\n");
}

TEST(Start, AUsersOwnPolicyStays) {
  const Outcome outcome = shell(
      R"(OMP_WAIT_POLICY=active OMP_DISPLAY_ENV=true "$REGARD" --version 2>&1 | grep -c "OMP_WAIT_POLICY = 'ACTIVE'")");
  EXPECT_EQ(outcome.out, "1\n");
}

TEST(Start, ArgumentsExitCodesAndTheNameAreKept) {
  Outcome outcome = shell(R"(unset OMP_WAIT_POLICY; "$REGARD" look '' ' two  spaces ')");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("' two  spaces '"));
  outcome = shell(R"(unset OMP_WAIT_POLICY; "$REGARD" look --model nowhere/there text)");
  EXPECT_EQ(outcome.code, 1);
  outcome = shell(R"(unset OMP_WAIT_POLICY; "$REGARD" --version > /dev/null)");
  EXPECT_EQ(outcome.code, 0);
  // A program that reads its input is still there after a second: under its own name.
  outcome = shell(R"(unset OMP_WAIT_POLICY; sleep 3 | "$REGARD" tokens > /dev/null & sleep 2
                     ps -o comm= --ppid $$ | grep -x regard)");
  EXPECT_EQ(outcome.out, "regard\n");
}

}  // namespace
}  // namespace regard::cli::testing

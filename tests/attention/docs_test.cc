#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>

// docs/semantics.md names the test of each line: such a test must exist.
namespace regard::attention {
namespace {

// "Suite.Test" of all tests of this program; of "Targets/Contract" and "OutAndLse/AVX2" what lies between.
std::set<std::string> registered_tests() {
  std::set<std::string> names;
  const auto& program = *::testing::UnitTest::GetInstance();
  for (int s = 0; s < program.total_test_suite_count(); ++s) {
    const ::testing::TestSuite& suite = *program.GetTestSuite(s);
    const std::string whole = suite.name();
    const std::string name = whole.substr(whole.find('/') + 1);
    names.insert(name + ".*");
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const std::string test = suite.GetTestInfo(t)->name();
      names.insert(name + "." + test.substr(0, test.find('/')));
    }
  }
  return names;
}

TEST(Docs, EveryTestThatSemanticsNamesExists) {
  std::ifstream file(std::string(REGARD_SOURCE_DIR) + "/docs/semantics.md");
  std::stringstream text;
  text << file.rdbuf();
  const std::string page = text.str();
  const std::set<std::string> known = registered_tests();
  const std::regex named("`([A-Z][A-Za-z]+\\.(\\*|[A-Z][A-Za-z]+))`");
  int count = 0;
  for (std::sregex_iterator at(page.begin(), page.end(), named), end; at != end; ++at, ++count) {
    EXPECT_TRUE(known.contains((*at)[1])) << (*at)[1] << " is not a test";
  }
  EXPECT_GT(count, 40);
}

}  // namespace
}  // namespace regard::attention

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

// docs/semantics.md names the test of each line: such a test must exist.
namespace regard::attention {
namespace {

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// "Suite.Test" and "Suite.*" of all tests of all rooms, from their sources.
std::set<std::string> written_tests() {
  std::set<std::string> names;
  const std::regex test("TEST(?:_[FP])?\\(\\s*(\\w+),\\s*(\\w+)\\)");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(REGARD_SOURCE_DIR "/tests")) {
    if (entry.path().extension() != ".cc") continue;
    const std::string source = contents(entry.path());
    for (std::sregex_iterator at(source.begin(), source.end(), test), end; at != end; ++at) {
      names.insert((*at)[1].str() + "." + (*at)[2].str());
      names.insert((*at)[1].str() + ".*");
    }
  }
  return names;
}

TEST(Docs, EveryTestThatSemanticsNamesExists) {
  const std::string page = contents(REGARD_SOURCE_DIR "/docs/semantics.md");
  const std::set<std::string> known = written_tests();
  const std::regex named("`([A-Z][A-Za-z0-9]+\\.(\\*|[A-Z][A-Za-z0-9]+))`");
  int count = 0;
  for (std::sregex_iterator at(page.begin(), page.end(), named), end; at != end; ++at, ++count) {
    EXPECT_TRUE(known.contains((*at)[1])) << (*at)[1] << " is not a test";
  }
  EXPECT_GT(count, 40);
}

}  // namespace
}  // namespace regard::attention

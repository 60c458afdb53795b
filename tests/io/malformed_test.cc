// Every file of scripts/make_malformed.py: broken ones end in an Error of one sentence that says what is
// wrong, odd ones load. Nothing else may happen, also under the sanitizers.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "regard/io/e5_file.h"
#include "regard/io/error.h"
#include "regard/io/gguf.h"
#include "regard/io/json.h"
#include "regard/io/model_folder.h"
#include "regard/io/npz.h"
#include "regard/io/safetensors.h"
#include "tests/io/files.h"

namespace regard::io {
namespace {

struct Case {
  std::string file, reader, verdict, fragment;
};

class Malformed : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    const std::string command =
        "python3 '" REGARD_SOURCE_DIR "/scripts/make_malformed.py' '" + folder_->path().string() + "' >&2";
    ASSERT_EQ(std::system(command.c_str()), 0);
    std::ifstream table(*folder_ / "cases.tsv");
    for (std::string line; std::getline(table, line);) {
      std::istringstream fields(line);
      Case c;
      std::getline(fields, c.file, '\t');
      std::getline(fields, c.reader, '\t');
      std::getline(fields, c.verdict, '\t');
      std::getline(fields, c.fragment, '\t');
      cases_.push_back(c);
    }
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }

  // Runs all cases of one reader; `least` guards against a script that writes nothing.
  template <class Read>
  static void check(const std::string& reader, size_t least, Read read) {
    size_t count = 0;
    for (const Case& c : cases_) {
      if (c.reader != reader) continue;
      ++count;
      SCOPED_TRACE(c.file);
      const std::filesystem::path path = *folder_ / c.file;
      std::string message;
      try {
        read(path);
      } catch (const Error& error) {
        message = error.what();
      } catch (const std::exception& error) {
        ADD_FAILURE() << "not an io::Error: " << error.what();
        continue;
      }
      if (c.verdict == "ok") {
        EXPECT_EQ(message, "");
        continue;
      }
      EXPECT_NE(message, "") << "a broken file was accepted";
      EXPECT_NE(message.find(c.fragment), std::string::npos) << message;
      EXPECT_NE(message.find(folder_->path().filename().string()), std::string::npos)
          << "no path: " << message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
      EXPECT_LT(message.size(), 500u) << message;
      for (const char ch : message) EXPECT_TRUE(ch >= 0x20 && ch < 0x7f) << message;
    }
    EXPECT_GE(count, least);
  }

  static TemporaryFolder* folder_;
  static std::vector<Case> cases_;
};
TemporaryFolder* Malformed::folder_ = nullptr;
std::vector<Case> Malformed::cases_;

// Touches every byte that a reader hands out: the sanitizers see what lies outside.
unsigned touch(const std::vector<Tensor>& tensors) {
  unsigned sum = 0;
  for (const Tensor& tensor : tensors) {
    for (const std::byte b : tensor.bytes) sum += std::to_integer<unsigned>(b);
    if (tensor.elements() > 0) sum += to_floats(tensor).empty();
  }
  return sum;
}

TEST_F(Malformed, Safetensors) {
  check("safetensors", 60, [](const auto& path) { touch(Safetensors::open(path).tensors()); });
}

TEST_F(Malformed, SafetensorsNotesAnUnknownField) {
  const Safetensors file = Safetensors::open(*folder_ / "safetensors/good_unknown_field");
  ASSERT_EQ(file.notes().size(), 1u);
  EXPECT_EQ(file.notes()[0], "tensor \"a\" has the unknown field \"colour\", ignored");
}

TEST_F(Malformed, Gguf) {
  check("gguf", 80, [](const auto& path) { touch(Gguf::open(path).tensors()); });
}

TEST_F(Malformed, Json) {
  check("json", 20, [](const auto& path) { read_json(path); });
}

TEST_F(Malformed, ModelFolder) {
  check("folder", 18, [](const auto& path) {
    const ModelFolder folder = ModelFolder::open(path);
    for (const Safetensors& shard : folder.shards()) touch(shard.tensors());
  });
}

TEST_F(Malformed, E5File) {
  check("e5", 55, [](const auto& path) { touch(E5File::open(path).tensors()); });
}

TEST_F(Malformed, Npz) {
  check("npz", 45, [](const auto& path) { touch(Npz::open(path, 150'000'000).tensors()); });
}

TEST_F(Malformed, AFolderIsNotAFile) {
  const std::filesystem::path& folder = folder_->path();
  for (const std::string& message :
       {message_of<Error>([&] { Safetensors::open(folder); }), message_of<Error>([&] { Gguf::open(folder); }),
        message_of<Error>([&] { E5File::open(folder); }), message_of<Error>([&] { Npz::open(folder); }),
        message_of<Error>([&] { read_json(folder); })}) {
    EXPECT_EQ(message, folder.string() + ": is a folder, a file was expected");
  }
}

}  // namespace
}  // namespace regard::io

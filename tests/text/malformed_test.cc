// Every file of make_malformed.py: broken ones end in an io::Error of one sentence that names what is wrong.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "regard/io/error.h"
#include "regard/io/gguf.h"
#include "regard/io/model_folder.h"
#include "regard/text/load.h"

namespace regard::text {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class MalformedTokenizers : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string pattern = (fs::temp_directory_path() / "regard-text-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder = pattern;
    const std::string command =
        "python3 '" REGARD_SOURCE_DIR "/tests/text/make_malformed.py' '" + pattern + "' >&2";
    ASSERT_EQ(std::system(command.c_str()), 0);
  }
  static void TearDownTestSuite() { fs::remove_all(folder); }

  static void check(const std::string& kind, size_t least, const std::function<void(const fs::path&)>& load) {
    std::ifstream table(folder / "expected.tsv");
    size_t cases = 0;
    for (std::string line; std::getline(table, line);) {
      std::istringstream fields(line);
      std::string case_kind, name, verdict, fragment;
      std::getline(fields, case_kind, '\t');
      std::getline(fields, name, '\t');
      std::getline(fields, verdict, '\t');
      std::getline(fields, fragment, '\t');
      if (case_kind != kind) continue;
      SCOPED_TRACE(name);
      ++cases;
      std::string message;
      const auto start = std::chrono::steady_clock::now();
      try {
        load(folder / kind / name);
      } catch (const io::Error& error) {
        message = error.what();
      }
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
      if (verdict == "good") {
        EXPECT_EQ(message, "");
        continue;
      }
      EXPECT_NE(message, "") << "a broken file was accepted";
      EXPECT_NE(message.find(fragment), std::string::npos) << message << "\nlacks " << fragment;
      EXPECT_NE(message.find(name), std::string::npos) << "the file is not named: " << message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    }
    EXPECT_GE(cases, least);
  }

  static inline fs::path folder;
};

TEST_F(MalformedTokenizers, TokenizerJsonIsRefusedByName) {
  check("json", 60, [](const fs::path& path) { tokenizer_from_json(read_file(path), path.string()); });
}

TEST_F(MalformedTokenizers, GgufMetadataIsRefusedByKeyAndIndex) {
  check("gguf", 20, [](const fs::path& path) { load_tokenizer(io::Gguf::open(path)); });
}

TEST_F(MalformedTokenizers, TokenizerJsonCutAnywhereIsRefused) {
  for (const char* name : {"good_wordpiece", "good_bpe", "good_unigram"}) {
    const std::string text = read_file(folder / "json" / name);
    ASSERT_FALSE(text.empty());
    for (size_t size = 0; size < text.size(); ++size)
      EXPECT_THROW(tokenizer_from_json(text.substr(0, size), "cut"), io::Error) << size;
  }
}

TEST(VocabTxt, WhatIsNoVocabularyIsRefusedByLine) {
  const auto message = [](const std::string& text) -> std::string {
    try {
      tokenizer_from_vocab_txt(text, "vocab.txt", true);
    } catch (const io::Error& error) {
      return error.what();
    }
    return "";
  };
  const std::string good = "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n";
  EXPECT_EQ(message(good), "");
  EXPECT_EQ(message("[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\na"), "");
  EXPECT_NE(message(good + "\nb\n").find("line 6 is empty"), std::string::npos);
  EXPECT_NE(message(good + "a\n").find("\"a\" is given twice, with ids 4 and 5"), std::string::npos);
  EXPECT_NE(message("a\nb\n").find("[CLS], [SEP] and [UNK]"), std::string::npos);
  EXPECT_NE(message(good + "\xFF\n").find("not valid UTF-8"), std::string::npos);
  EXPECT_NE(message(""), "");
}

TEST(LoadTokenizer, AFolderWithoutTokenizerFilesIsRefused) {
  std::string pattern = (fs::temp_directory_path() / "regard-text-XXXXXX").string();
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  std::string message;
  try {
    load_tokenizer(io::ModelFolder::open(pattern));
  } catch (const io::Error& error) {
    message = error.what();
  }
  fs::remove_all(pattern);
  EXPECT_NE(message.find("neither tokenizer.json nor vocab.txt"), std::string::npos) << message;
}

}  // namespace
}  // namespace regard::text

#include "regard/io/e5_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "regard/io/error.h"
#include "tests/io/files.h"

namespace regard::io {
namespace {

std::filesystem::path e5_path() {
  const std::filesystem::path folder = installed_model("e5");
  return folder.empty() ? folder : folder / "e5-small-q4.bin";
}

#define SKIP_WITHOUT_E5() \
  if (e5_path().empty()) GTEST_SKIP() << "the model e5 is not installed (regard models get e5)"

TEST(E5File, HeaderAndTokenizerAreThoseOfTheModel) {
  SKIP_WITHOUT_E5();
  const E5File file = E5File::open(e5_path());
  const E5Config& config = file.config();
  EXPECT_EQ(config.width, 384);
  EXPECT_EQ(config.layers, 12);
  EXPECT_EQ(config.heads, 12);
  EXPECT_EQ(config.feed_forward, 1536);
  EXPECT_EQ(config.vocabulary, 250037);
  EXPECT_EQ(config.positions, 512);
  EXPECT_EQ(config.token_types, 2);
  EXPECT_EQ(config.epsilon, 1e-12f);
  const E5Tokenizer& tokenizer = file.tokenizer();
  ASSERT_EQ(tokenizer.pieces.size(), 250002u);
  EXPECT_EQ(tokenizer.bos, 0);
  EXPECT_EQ(tokenizer.eos, 2);
  EXPECT_EQ(tokenizer.pad, 1);
  EXPECT_EQ(tokenizer.unknown, 3);
  EXPECT_EQ(tokenizer.pieces[0], "<s>");
  EXPECT_EQ(tokenizer.pieces[250001], "<mask>");
  EXPECT_EQ(tokenizer.scores[250001], 0);
  EXPECT_NEAR(tokenizer.scores[4], -3.4635, 5e-5);
  EXPECT_FLOAT_EQ(tokenizer.scores[250000], -20.364752f);
  ASSERT_EQ(tokenizer.normalization.size(), 4837u);
  for (const E5Normalization& record : tokenizer.normalization) {
    if (record.from == 0xFDFA) {
      EXPECT_EQ(record.to.size(), 18u);
    }
    if (record.from == 0x3000) {
      EXPECT_EQ(record.to, std::vector<char32_t>{U' '});
    }
  }
}

TEST(E5File, EveryTensorHasTheReferencesValues) {
  SKIP_WITHOUT_E5();
  const E5File file = E5File::open(e5_path());
  std::ifstream table(golden("e5_tensors.tsv"));
  std::string line;
  std::getline(table, line);  // the names of the columns
  size_t count = 0;
  while (std::getline(table, line)) {
    std::istringstream row(line);
    std::string name, published, type, shape;
    float first[3], last;
    double sum, squares;
    row >> name >> published >> type >> shape >> first[0] >> first[1] >> first[2] >> last >> sum >> squares;
    ASSERT_TRUE(row) << line;
    SCOPED_TRACE(name);
    ++count;
    const Tensor& tensor = file.require(published);
    EXPECT_EQ(type_name(tensor.type), type);
    std::string got_shape;
    for (const int64_t size : tensor.shape)
      got_shape.append(got_shape.empty() ? "" : "x").append(std::to_string(size));
    EXPECT_EQ(got_shape, shape);
    const std::vector<float> got = to_floats(tensor);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(got[size_t(i)], first[i]);
    EXPECT_EQ(got.back(), last);
    double got_sum = 0, got_squares = 0;
    for (const float x : got) {
      got_sum += x;
      got_squares += double{x} * x;
    }
    // The reference adds up in another order.
    EXPECT_NEAR(got_sum, sum, 1e-8 * (1 + std::abs(sum)));
    EXPECT_NEAR(got_squares, squares, 1e-10 * (1 + squares));
  }
  EXPECT_EQ(count, 197u);
  EXPECT_EQ(file.tensors().size(), count);
}

}  // namespace
}  // namespace regard::io

#include "regard/lens/qkv_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "regard/io/error.h"
#include "regard/io/npz.h"
#include "tests/lens/made.h"

namespace regard::lens {
namespace {

class QkvFile : public testing::Test {
 protected:
  QkvFile() : folder_(std::filesystem::temp_directory_path() / ("regard_qkv_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~QkvFile() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::vector<io::Tensor>& arrays) {
    const auto path = folder_ / "qkv.npz";
    io::write_npz(path, arrays);
    return path;
  }

  void expect_error(const std::vector<io::Tensor>& arrays, const std::string& part) {
    try {
      read_qkv(write(arrays), {});
      ADD_FAILURE() << "no error that says '" << part << "'";
    } catch (const io::Error& e) {
      EXPECT_THAT(e.what(), testing::HasSubstr(part));
    }
  }

  std::filesystem::path folder_;
  std::vector<float> q_ = made::noise(4 * 6 * 8, 1);
  std::vector<float> k_ = made::noise(2 * 6 * 8, 2);
  std::vector<float> v_ = made::noise(2 * 6 * 5, 3);
};

TEST_F(QkvFile, OneLayerOfAnyProgramGivesItsSoftmax) {
  const Recording recording = read_qkv(
      write({io::view("q", {4, 6, 8}, q_), io::view("k", {2, 6, 8}, k_), io::view("v", {2, 6, 5}, v_)}), {});
  ASSERT_EQ(recording.layers.size(), 1U);
  EXPECT_EQ(recording.size(), 6);
  EXPECT_FALSE(recording.causal);
  EXPECT_EQ(recording.layers[0].value_size, 5);
  double sum = 0;
  std::vector<double> expected(6);
  for (size_t j = 0; j < 6; ++j) {
    double dot = 0;
    for (size_t c = 0; c < 8; ++c) {
      dot += static_cast<double>(q_[(3 * 6 + 2) * 8 + c]) * static_cast<double>(k_[(6 + j) * 8 + c]);
    }
    sum += expected[j] = std::exp(dot / std::sqrt(8.0));
  }
  const std::vector<float> row = recording.layers[0].weights_row(3, 2);
  for (size_t j = 0; j < 6; ++j) EXPECT_NEAR(row[j], expected[j] / sum, 1e-5);
}

TEST_F(QkvFile, AMaskThatIsTheLowerTriangleMeansCausal) {
  std::vector<uint8_t> mask(36);
  for (size_t i = 0; i < 6; ++i) {
    for (size_t j = 0; j <= i; ++j) mask[i * 6 + j] = 1;
  }
  const Recording recording = read_qkv(
      write({io::view("q", {4, 6, 8}, q_), io::view("k", {2, 6, 8}, k_), io::view("mask", {6, 6}, mask)}),
      {});
  EXPECT_TRUE(recording.causal);
  EXPECT_EQ(recording.layers[0].weights_row(0, 2)[3], 0.0F);
}

TEST_F(QkvFile, AnyOtherMaskHidesWhatItHides) {
  std::vector<uint8_t> mask(36, 1);
  mask[2 * 6 + 4] = 0;
  const Recording recording = read_qkv(
      write({io::view("q", {4, 6, 8}, q_), io::view("k", {2, 6, 8}, k_), io::view("mask", {6, 6}, mask)}),
      {});
  EXPECT_EQ(recording.layers[0].weights_row(1, 2)[4], 0.0F);
  EXPECT_GT(recording.layers[0].weights_row(1, 3)[4], 0.0F);
  EXPECT_EQ(recording.layers[0].visible(1, 2).count, 5);
}

TEST_F(QkvFile, WrittenRecordingsAreReadBackBitForBit) {
  const Recording original = made::recording(
      made::words(9),
      {made::random_layer(4, 2, 9, 8, true, 4), made::random_layer(4, 2, 9, 8, true, 7, Precision::f32, 5)},
      true);
  write_qkv(folder_ / "out.npz", original);
  const Recording read = read_qkv(folder_ / "out.npz", {});
  ASSERT_EQ(read.layers.size(), 2U);
  EXPECT_TRUE(read.causal);
  EXPECT_EQ(read.layers[1].layer, 5);
  for (size_t l = 0; l < 2; ++l) {
    EXPECT_EQ(read.layers[l].q, original.layers[l].q);
    EXPECT_EQ(read.layers[l].v, original.layers[l].v);
    EXPECT_EQ(read.layers[l].weights_row(3, 8), original.layers[l].weights_row(3, 8));
  }
  const io::Npz file = io::Npz::open(folder_ / "out.npz");
  EXPECT_EQ(file.require("weights").shape, (std::vector<int64_t>{2, 4, 9, 9}));
  EXPECT_EQ(file.require("entropy").shape, (std::vector<int64_t>{2, 4, 9}));
}

TEST_F(QkvFile, TokensGiveWordsBySubwordMarks) {
  std::ofstream(folder_ / "tokens.txt") << "[CLS]\nun\n##believ\n##able\n!\n[SEP]\n";
  const Recording recording =
      read_qkv(write({io::view("q", {4, 6, 8}, q_), io::view("k", {2, 6, 8}, k_)}), folder_ / "tokens.txt");
  ASSERT_EQ(recording.words.size(), 4U);
  EXPECT_EQ(recording.words[1].text, "unbelievable");
  EXPECT_EQ(recording.words[1].count, 3);
  EXPECT_TRUE(recording.words[0].special);
  EXPECT_TRUE(recording.words[2].punctuation);
}

TEST_F(QkvFile, ByteLevelAndSentencePieceMarksStartWords) {
  Recording recording;
  describe_pieces({"The", "\u0120cat", "s", ".", "\u2581", "x"}, recording);
  ASSERT_EQ(recording.words.size(), 5U);
  EXPECT_EQ(recording.words[1].text, "cats");
}

TEST_F(QkvFile, WhatDoesNotFitIsNamed) {
  const auto q = io::view("q", {4, 6, 8}, q_);
  const auto k = io::view("k", {2, 6, 8}, k_);
  expect_error({q}, "k");
  expect_error({io::view("q", {24, 8}, q_), k}, "q has shape [24, 8]");
  expect_error({q, io::view("k", {2, 8, 6}, k_)}, "k has shape [2, 8, 6]");
  std::vector<float> three(3 * 6 * 8);
  expect_error({q, io::view("k", {3, 6, 8}, three)}, "must divide the query heads");
  std::vector<float> additive(36);
  expect_error({q, k, io::view("mask", {6, 6}, additive)}, "true = may attend");
  std::vector<uint8_t> small(25, 1);
  expect_error({q, k, io::view("mask", {5, 5}, small)}, "mask has shape [5, 5]");
  std::vector<float> bad = k_;
  bad[3] = std::numeric_limits<float>::quiet_NaN();
  expect_error({q, io::view("k", {2, 6, 8}, bad)}, "k holds NaN");
}

TEST_F(QkvFile, ATokenFileOfAnotherLengthIsRefused) {
  std::ofstream(folder_ / "tokens.txt") << "a\nb\n";
  const auto path = write({io::view("q", {4, 6, 8}, q_), io::view("k", {2, 6, 8}, k_)});
  EXPECT_THROW(read_qkv(path, folder_ / "tokens.txt"), io::Error);
  EXPECT_THROW(read_qkv(path, folder_ / "absent.txt"), io::Error);
}

}  // namespace
}  // namespace regard::lens

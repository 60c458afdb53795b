#include "regard/io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "regard/io/error.h"
#include "tests/io/files.h"

namespace regard::io {
namespace {

TEST(Safetensors, ReadsWhatThePackageWrote) {
  const Safetensors file = Safetensors::open(golden("types.safetensors"));
  EXPECT_EQ(file.tensors().size(), 9u);
  EXPECT_THAT(file.metadata(), testing::ElementsAre(testing::Pair("made by", "safetensors")));
  for (const Tensor& tensor : file.tensors()) EXPECT_EQ(type_name(tensor.type), tensor.name);
  EXPECT_EQ(file.require("i32").shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(values<int32_t>(file.require("i32")), (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(values<int64_t>(file.require("i64")), (std::vector<int64_t>{int64_t{1} << 40, -1}));
  EXPECT_EQ(file.find("nothing"), nullptr);
  EXPECT_THAT(message_of<Error>([&] { file.require("nothing"); }),
              testing::HasSubstr("\"nothing\" is missing"));
}

TEST(Safetensors, WritingAndReadingGivesTheSame) {
  const TemporaryFolder folder;
  const std::vector<float> floats = {1.5f, -2, 3, 4, 5, 6};
  const std::vector<uint8_t> bytes = {1, 2, 255};
  const std::vector<int64_t> scalar = {-7};
  const std::vector<double> none;
  const std::vector<Tensor> tensors = {view("\u6ce8\u610f \"quoted\"", {2, 3}, floats),
                                       view("bytes", {3}, bytes), view("scalar", {}, scalar),
                                       view("none", {0, 5}, none)};
  const std::map<std::string, std::string> metadata = {{"format", "pt"}, {"note", "line\nbreak"}};
  write_safetensors(folder / "x.safetensors", tensors, metadata);

  const Safetensors file = Safetensors::open(folder / "x.safetensors");
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& got = file.tensors()[i];
    EXPECT_EQ(got.name, tensors[i].name);
    EXPECT_EQ(got.type, tensors[i].type);
    EXPECT_EQ(got.shape, tensors[i].shape);
    EXPECT_TRUE(
        std::equal(got.bytes.begin(), got.bytes.end(), tensors[i].bytes.begin(), tensors[i].bytes.end()));
  }
  // The first tensor lies aligned in the mapped file.
  EXPECT_EQ(reinterpret_cast<uintptr_t>(file.tensors()[0].bytes.data()) % 64, 0u);
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(Safetensors, SavingOverTheMappedFileKeepsBoth) {
  const TemporaryFolder folder;
  std::vector<float> numbers(10000, 1.0f);
  write_safetensors(folder / "x", std::vector{view("a", {10000}, numbers)});
  const Safetensors old = Safetensors::open(folder / "x");
  std::fill(numbers.begin(), numbers.end(), 2.0f);
  write_safetensors(folder / "x", std::vector{view("a", {10000}, numbers)});
  EXPECT_EQ(values<float>(old.require("a"))[9999], 1.0f);
  EXPECT_EQ(values<float>(Safetensors::open(folder / "x").require("a"))[9999], 2.0f);
}

TEST(Safetensors, StaysValidWhenMoved) {
  Safetensors first = Safetensors::open(golden("types.safetensors"));
  const std::byte* data = first.require("f32").bytes.data();
  const Safetensors second = std::move(first);
  EXPECT_EQ(second.require("f32").bytes.data(), data);
}

TEST(Safetensors, WriterRefusesWhatTheFormatCannotHold) {
  const TemporaryFolder folder;
  const std::vector<float> two = {1, 2};
  const Tensor good = view("a", {2}, two);
  Tensor blocks = good;
  blocks.type = Type::q4_0;
  const auto write = [&](std::vector<Tensor> tensors) {
    return message_of<std::invalid_argument>([&] { write_safetensors(folder / "x", tensors); });
  };
  EXPECT_THAT(write({blocks}), testing::HasSubstr("type q4_0"));
  EXPECT_THAT(write({view("a", {3}, two)}), testing::HasSubstr("do not fit its shape [3]"));
  EXPECT_THAT(write({good, good}), testing::HasSubstr("repeated"));
  EXPECT_THAT(write({view("__metadata__", {2}, two)}), testing::HasSubstr("reserved"));
  EXPECT_EQ(folder.entries(), 0u);
}

}  // namespace
}  // namespace regard::io

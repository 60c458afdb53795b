#include "regard/io/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "regard/io/error.h"
#include "tests/io/files.h"

namespace regard::io {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Gguf, MetadataOfEveryTypeIsWhatThePackageWrote) {
  const Gguf file = Gguf::open(golden("blocks.gguf"));
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.require_string("general.architecture"), "test");
  EXPECT_EQ(file.require_int("t.u8", 0, 255), 200);
  EXPECT_EQ(file.require_int("t.i8", -128, 127), -100);
  EXPECT_EQ(file.require_int("t.u16", 0, 65535), 60000);
  EXPECT_EQ(file.require_int("t.i16", -32768, 32767), -30000);
  EXPECT_EQ(file.require_int("t.u32", 0, INT64_MAX), 4000000000);
  EXPECT_EQ(file.require_int("t.i32", INT64_MIN, 0), -2000000000);
  EXPECT_EQ(file.require_int("t.i64", INT64_MIN, 0), -(int64_t{1} << 62));
  EXPECT_EQ(file.require_float("t.f32"), 0.15625);
  EXPECT_EQ(file.require_float("t.f64"), 1e300);
  EXPECT_TRUE(file.require_bool("t.true"));
  EXPECT_FALSE(file.require_bool("t.false"));
  EXPECT_EQ(file.require_string("t.string"), "self-attention \u81ea\u6ce8\u610f\u529b");
  EXPECT_THAT(file.require_strings("t.strings"), ElementsAre("a", "", "\u8bcd"));
  EXPECT_THAT(file.require_ints("t.ints", -5, 5), ElementsAre(1, -2, 3));
  EXPECT_THAT(file.require_floats("t.floats"), ElementsAre(0.5f, -1.25f));
  EXPECT_EQ(file.require("f32").shape, (std::vector<int64_t>{2, 3, 5}));
}

TEST(Gguf, GettersSayWhatIsThereAndWhatIsAllowed) {
  const Gguf file = Gguf::open(golden("blocks.gguf"));
  const auto ask = [&](auto getter) { return message_of<Error>([&] { getter(file); }); };
  EXPECT_THAT(ask([](auto& f) { f.require_int("t.u8", 0, 100); }),
              HasSubstr("key \"t.u8\" is 200; it must be a whole number from 0 to 100"));
  EXPECT_THAT(ask([](auto& f) { f.require_int("t.u64", 0, INT64_MAX); }), HasSubstr("is of type UINT64"));
  EXPECT_THAT(ask([](auto& f) { f.require_int("t.f32", 0, 1); }),
              HasSubstr("is of type FLOAT32; it must be a whole"));
  EXPECT_THAT(ask([](auto& f) { f.require_int("t.true", 0, 1); }), HasSubstr("is of type BOOL"));
  EXPECT_THAT(ask([](auto& f) { f.require_int("nothing", 0, 1); }), HasSubstr("key \"nothing\" is missing"));
  EXPECT_THAT(ask([](auto& f) { f.require_int("t.ints", 0, 1); }), HasSubstr("is an array of 3 INT32"));
  EXPECT_THAT(ask([](auto& f) { f.require_float("t.u8"); }),
              HasSubstr("it must be of type FLOAT32 or FLOAT64"));
  EXPECT_THAT(ask([](auto& f) { f.require_floats("t.ints"); }), HasSubstr("it must be an array of FLOAT32"));
  EXPECT_THAT(ask([](auto& f) { f.require_ints("t.floats", 0, 1); }),
              HasSubstr("it must be an array of an integer"));
  EXPECT_THAT(ask([](auto& f) { f.require_ints("t.ints", 0, 5); }), HasSubstr("has -2 at index 1"));
  EXPECT_THAT(ask([](auto& f) { f.require_strings("t.string"); }),
              HasSubstr("it must be an array of STRING"));
  EXPECT_THAT(ask([](auto& f) { f.require_string("t.u8"); }), HasSubstr("it must be of type STRING"));
  EXPECT_THAT(ask([](auto& f) { f.require_bool("t.u8"); }), HasSubstr("it must be of type BOOL"));
  EXPECT_EQ(file.int_or("nothing", 7, 0, 1), 7);
  EXPECT_EQ(file.string_or("nothing", "x"), "x");
  EXPECT_THAT(ask([](auto& f) { f.int_or("t.string", 7, 0, 1); }), HasSubstr("is of type STRING"));
}

// By the definition of the permutation in the converter: rows [heads, 2, half] become [heads, half, 2].
TEST(Gguf, UnpermutedRowsUndoThePermutation) {
  const int64_t heads = 3, half = 4, rows = heads * 2 * half;
  std::vector<int64_t> permuted;  // entry: the published row that lies there
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t i = 0; i < half; ++i) {
      for (int64_t part = 0; part < 2; ++part) permuted.push_back((h * 2 + part) * half + i);
    }
  }
  const std::vector<int64_t> source = unpermuted_rows(rows, heads);
  for (int64_t r = 0; r < rows; ++r) EXPECT_EQ(permuted[size_t(source[size_t(r)])], r);
  EXPECT_THROW(unpermuted_rows(10, 3), std::invalid_argument);
  EXPECT_THROW(unpermuted_rows(9, 3), std::invalid_argument);
  EXPECT_THROW(unpermuted_rows(8, 0), std::invalid_argument);
}

TEST(Gguf, UnpermuteMovesWholeRowsOfBlocks) {
  std::vector<std::byte> data(4 * 36);  // 4 rows of 64 elements in q4_0
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i);
  const Tensor matrix{"q", Type::q4_0, {4, 64}, data};
  const std::vector<std::byte> moved = unpermute_rows(matrix, 1);
  const int64_t source[] = {0, 2, 1, 3};
  for (int64_t r = 0; r < 4; ++r) {
    EXPECT_EQ(std::memcmp(moved.data() + r * 36, data.data() + source[r] * 36, 36), 0) << r;
  }
}

TEST(Gguf, OpensSmolLM2) {
  const std::filesystem::path folder = installed_model("smollm2");
  if (folder.empty()) GTEST_SKIP() << "the model smollm2 is not installed (regard models get smollm2)";
  const Gguf file = Gguf::open(folder / "SmolLM2-135M-Instruct.Q4_1.gguf");
  EXPECT_EQ(file.tensors().size(), 272u);
  EXPECT_EQ(file.keys().size(), 33u);
  EXPECT_EQ(file.require_string("general.architecture"), "llama");
  EXPECT_EQ(file.require_int("llama.block_count", 1, 1000), 30);
  EXPECT_EQ(file.require_strings("tokenizer.ggml.tokens").size(), 49152u);
  EXPECT_EQ(file.require_strings("tokenizer.ggml.merges").size(), 48900u);
  const Tensor& embedding = file.require("token_embd.weight");
  EXPECT_EQ(embedding.shape, (std::vector<int64_t>{49152, 576}));
  EXPECT_EQ(embedding.type, Type::q8_0);
  EXPECT_EQ(file.require("blk.0.attn_k.weight").shape, (std::vector<int64_t>{192, 576}));
  EXPECT_EQ(file.require("blk.0.attn_k.weight").type, Type::q4_1);
}

}  // namespace
}  // namespace regard::io

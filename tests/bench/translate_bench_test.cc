// One loop trains ours and libtorch's Transformer: they see the same texts and, from the same numbers, learn
// the same.
#include "bench/translate_bench.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "tests/io/files.h"

namespace regard::bench {
namespace {

constexpr const char* kCopy = R"(
kind = "translator"
[data]
task = "copy"
symbols = 4
shortest = 2
length = 4
texts = 200
valid_texts = 20
[model]
architecture = "transformer"
layers = 1
width = 32
heads = 2
feed_forward = 64
norm_place = "post"
norm = "layer"
dropout = 0
[train]
steps = 10
batch_tokens = 256
optimizer = "adam"
rate = 1e-3
warmup = 2
label_smoothing = 0.1
validate_every = 5
)";

class TranslateBenchTest : public ::testing::Test {
 protected:
  TranslateBench bench() const {
    io::write_all(folder_ / "copy.toml", kCopy);
    TranslateBench bench;
    bench.recipe = train::read_recipe(folder_ / "copy.toml");
    bench.folder = folder_ / "out";
    bench.turn = 3;
    return bench;
  }
  // Lines of a training's log: loss and tokens of each step.
  std::vector<std::pair<double, long long>> log(const std::string& model) const {
    std::ifstream file(folder_ / "out" / model / "log.csv");
    std::string line;
    std::getline(file, line);
    std::vector<std::pair<double, long long>> out;
    while (std::getline(file, line)) {
      auto& [loss, tokens] = out.emplace_back();
      EXPECT_EQ(std::sscanf(line.c_str(), "%*d,%lf,%*f,%*f,%lld", &loss, &tokens), 2) << line;
    }
    return out;
  }

  io::TemporaryFolder folder_;
};

TEST_F(TranslateBenchTest, BothLearnTheSameFromTheSameTexts) {
  const auto rows = translate_bench(bench());
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["model"], "regard");
  EXPECT_EQ(rows[1]["model"], "libtorch");
  for (const char* same : {"parameters", "steps", "tokens", "test_texts", "beam"})
    EXPECT_EQ(rows[0][same], rows[1][same]) << same;
  EXPECT_EQ(rows[0]["steps"], 10);
  EXPECT_EQ(rows[0]["test_texts"], 20);
  EXPECT_NEAR(rows[0]["valid_loss"].get<double>(), rows[1]["valid_loss"].get<double>(), 1e-3);
  EXPECT_NEAR(rows[0]["test_loss"].get<double>(), rows[1]["test_loss"].get<double>(), 1e-3);
  // The test is the validation here, and the model that was kept is the one that is tested.
  for (const auto& row : rows)
    EXPECT_NEAR(row["test_loss"].get<double>(), row["valid_loss"].get<double>(), 1e-5);
  const auto ours = log("regard"), peer = log("libtorch");
  ASSERT_EQ(ours.size(), 10u);
  ASSERT_EQ(peer.size(), 10u);
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_NEAR(ours[i].first, peer[i].first, i == 0 ? 1e-5 : 1e-3) << "step " << i + 1;
    EXPECT_EQ(ours[i].second, peer[i].second) << "step " << i + 1;
  }
}

TEST_F(TranslateBenchTest, GoesOnWhereItWasStopped) {
  TranslateBench stopped = bench();
  int64_t asked = 0;
  stopped.stop = [&] { return ++asked > 4; };
  EXPECT_TRUE(translate_bench(stopped).empty());
  const size_t before = log("regard").size() + log("libtorch").size();
  EXPECT_GT(before, 0u);
  EXPECT_LT(before, 20u);
  const auto rows = translate_bench(bench());
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(log("regard").size() + log("libtorch").size(), 20u);
  EXPECT_EQ(rows[0]["tokens"], rows[1]["tokens"]);
}

}  // namespace
}  // namespace regard::bench

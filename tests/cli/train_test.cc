// `regard train` as users run it: what it leaves behind, and what a kill at any moment does to it: nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kills.h"
#include "program.h"
#include "tests/io/files.h"

namespace regard::cli::testing {
namespace {

using ::testing::HasSubstr;

class TrainVerb : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 400; ++i) text += "the quick brown fox " + std::to_string(i % 7) + " jumps; ";
    io::write_all(folder_ / "text.txt", text);
    io::write_all(folder_ / "recipe.toml", R"(
[data]
train = "text.txt"
valid = "text.txt"
[model]
layers = 1
width = 32
heads = 2
[train]
steps = 300
length = 32
batch = 4
rate = 1e-2
warmup = 10
validate_every = 25
validation_pieces = 4
save_every = 7
)");
  }
  Outcome train(const std::string& out, std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {"train", (folder_ / "recipe.toml").string(), "--out",
                                          (folder_ / out).string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  std::string bytes(const std::string& name) const {
    std::ifstream file(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  io::TemporaryFolder folder_;
};

TEST_F(TrainVerb, LeavesAModelThatRunScoreAndLookTake) {
  const Outcome trained = train("run", {"--json"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("model.heads is 2, no multiple of 8"));
  const auto json = nlohmann::json::parse(trained.out);
  EXPECT_EQ(json["ending"], "finished");
  EXPECT_EQ(json["step"], 300);
  EXPECT_LT(json["best_loss"].get<double>(), 1.0);
  const std::string model = (folder_ / "run").string();
  const Outcome text =
      run({"run", "--model", model, "--max-tokens", "12", "--temperature", "0", "the quick "});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("brown fox"));
  const Outcome score = run({"score", "--model", model, "--json", "the quick brown fox"});
  EXPECT_EQ(score.code, 0) << score.err;
  EXPECT_EQ(run({"look", "--model", model, "the quick brown"}).code, 0);
}

TEST_F(TrainVerb, KilledAtAnyMomentItEndsWithTheSameBits) {
  std::string recipe = io::read_all(folder_ / "recipe.toml");
  io::write_all(folder_ / "recipe.toml", recipe.replace(recipe.find("steps = 300"), 11, "steps = 1000"));
  ASSERT_EQ(train("whole").code, 0);
  EXPECT_EQ(kill_training((folder_ / "recipe.toml").string(), (folder_ / "killed").string(), 20), 20);
  const Outcome outcome = train("killed");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* file :
       {"checkpoint-001000.safetensors", "model.safetensors", "validation.csv", "heads.csv"}) {
    EXPECT_EQ(bytes(std::string("killed/") + file), bytes(std::string("whole/") + file)) << file;
    EXPECT_FALSE(bytes(std::string("whole/") + file).empty()) << file;
  }
}

TEST_F(TrainVerb, InterruptAndTerminationSaveAndSayHowToGoOn) {
  // --foreground: one signal; otherwise timeout sends another to its group, and a second one ends at once.
  for (const std::string& signal : {std::string("INT"), std::string("TERM")}) {
    const Outcome outcome = shell(
        "timeout --foreground -s " + signal + " 2 \"$REGARD\" train '" + (folder_ / "recipe.toml").string() +
        "' --set train.steps=1000000 --set train.save_every=1000000 --out '" + (folder_ / signal).string() +
        "'; ls '" + (folder_ / signal).string() + "'");
    EXPECT_THAT(outcome.out, HasSubstr("the same command goes on from here")) << signal;
    EXPECT_THAT(outcome.out, HasSubstr("stopped after step")) << signal;
    EXPECT_THAT(outcome.out, HasSubstr("\ncheckpoint-")) << signal;
  }
}

TEST_F(TrainVerb, AModelWithFewerKeyHeadsBeginsFromOneWithMore) {
  ASSERT_EQ(train("many", {"--set", "train.steps=100"}).code, 0);
  const Outcome few = train("few", {"--from", (folder_ / "many").string(), "--set", "model.kv_heads=1",
                                    "--set", "train.steps=10", "--set", "train.rate=1e-3", "--json"});
  ASSERT_EQ(few.code, 0) << few.err;
  // A random start would be at ln 256 = 5.5 after ten steps of such a rate.
  EXPECT_LT(nlohmann::json::parse(few.out)["best_loss"].get<double>(), 4.0);
  const Outcome wrong = train("wrong", {"--from", (folder_ / "many").string(), "--set", "model.width=48"});
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.err, HasSubstr("expected [256, 48]"));
}

TEST_F(TrainVerb, WrongRecipesAreUsedWrongly) {
  const Outcome key = train("run", {"--set", "train.step=5"});
  EXPECT_EQ(key.code, 2);
  EXPECT_THAT(key.err, HasSubstr("did you mean steps?"));
  const Outcome missing = run({"train", (folder_ / "none.toml").string()});
  EXPECT_EQ(missing.code, 1);
  EXPECT_THAT(missing.err, HasSubstr("none.toml"));
  const Outcome data = train("run", {"--set", "data.train=nowhere.txt"});
  EXPECT_EQ(data.code, 1);
  EXPECT_THAT(data.err, HasSubstr("nowhere.txt"));
}

}  // namespace
}  // namespace regard::cli::testing

// `regard train` of a translator and `regard eval`, as users run them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kills.h"
#include "program.h"
#include "regard/io/idx.h"
#include "tests/io/files.h"

namespace regard::cli::testing {
namespace {

using ::testing::HasSubstr;

class EvalVerb : public ::testing::Test {
 protected:
  static nlohmann::json golden() {
    std::ifstream file(std::filesystem::path(REGARD_GOLDEN_DIR) / "train/sacrebleu.json");
    return nlohmann::json::parse(file);
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  static std::string lines(const std::vector<std::string>& all) {
    std::string out;
    for (const std::string& line : all) out += line + '\n';
    return out;
  }
  std::string bytes(const std::string& name) const {
    std::ifstream file(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write_copy_recipe(int steps = 150) const {
    io::write_all(folder_ / "copy.toml", std::string(R"(
kind = "translator"
[data]
task = "copy"
symbols = 4
shortest = 2
length = 4
texts = 600
valid_texts = 20
[model]
architecture = "rnn"
attention = "additive"
embedding = 32
width = 32
dropout = 0.1
[train]
batch_tokens = 256
optimizer = "adam"
rate = 3e-3
schedule = "constant"
warmup = 20
validate_every = 50
save_every = 7
steps = )") + std::to_string(steps));
  }

  io::TemporaryFolder folder_;
};

TEST_F(EvalVerb, FilesScoreAsSacrebleuDoes) {
  size_t cases = 0;
  const nlohmann::json all = golden();
  for (const auto& one : all["scores"]) {
    // Whole lines only: some cases hold line ends, some sentences have fewer references than others.
    const auto translations = one["translations"].get<std::vector<std::string>>();
    const auto references = one["references"].get<std::vector<std::vector<std::string>>>();
    bool fits = true;
    for (const auto& several : references) fits = fits && several.size() == references[0].size();
    for (const auto& text : translations)
      fits = fits && text.find('\n') == std::string::npos && !text.empty();
    if (!fits) continue;
    std::vector<std::string> arguments = {"eval",       "--hypotheses", path("out"),
                                          "--tokenize", one["tokens"],  "--json"};
    io::write_all(folder_ / "out", lines(translations));
    for (size_t i = 0; i < references[0].size(); ++i) {
      std::vector<std::string> column;
      for (const auto& several : references) column.push_back(several[i]);
      io::write_all(folder_ / ("ref" + std::to_string(i)), lines(column));
      arguments.insert(arguments.end(), {"--references", path("ref" + std::to_string(i))});
    }
    const Outcome outcome = run(arguments);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const auto json = nlohmann::json::parse(outcome.out);
    EXPECT_NEAR(json["bleu"].get<double>(), one["bleu"].get<double>(), 1e-9) << one["name"];
    EXPECT_NEAR(json["chrf"].get<double>(), one["chrf"].get<double>(), 1e-9) << one["name"];
    ++cases;
  }
  EXPECT_GE(cases, 3u);
}

TEST_F(EvalVerb, ATrainedTranslatorIsTestedOnATaskAndOnAFile) {
  write_copy_recipe();
  const Outcome trained = run({"train", path("copy.toml"), "--out", path("copy"), "--json"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_GE(nlohmann::json::parse(trained.out)["best_accuracy"].get<double>(), 0.5);
  const Outcome task = run({"eval", "--model", path("copy"), "--task", "copy", "--symbols", "4",
                            "--task-length", "4", "--task-shortest", "2", "--texts", "40", "--json"});
  ASSERT_EQ(task.code, 0) << task.err;
  const auto json = nlohmann::json::parse(task.out);
  EXPECT_EQ(json["texts"], 40);
  EXPECT_GT(json["accuracy"].get<double>(), 0.4);
  EXPECT_LT(json["loss"].get<double>(), 1.0);

  io::write_all(folder_ / "test.tsv", "1 2 3\t1 2 3\n4 4\t4 4\t1 1\n");
  const Outcome file = run({"eval", "--model", path("copy"), "--data", path("test.tsv"), "--beam", "2",
                            "--write", path("written.txt")});
  ASSERT_EQ(file.code, 0) << file.err;
  EXPECT_THAT(file.out, HasSubstr("0 to 5"));
  EXPECT_THAT(file.out, HasSubstr("all"));
  const std::string written = bytes("written.txt");
  EXPECT_EQ(std::count(written.begin(), written.end(), '\n'), 2);
  const Outcome swapped =
      run({"eval", "--model", path("copy"), "--data", path("test.tsv"), "--swap", "--json"});
  EXPECT_EQ(nlohmann::json::parse(swapped.out)["texts"], 3);

  const Outcome both =
      run({"eval", "--model", path("copy"), "--model", path("copy"), "--task", "copy", "--symbols", "4",
           "--task-length", "4", "--task-shortest", "2", "--texts", "10", "--png", path("plot.png")});
  ASSERT_EQ(both.code, 0) << both.err;
  EXPECT_EQ(bytes("plot.png").substr(1, 3), "PNG");
  const Outcome one_file = run({"eval", "--model", path("copy"), "--model", path("copy"), "--data",
                                path("test.tsv"), "--write", path("both.txt")});
  EXPECT_EQ(one_file.code, 2);
  EXPECT_THAT(one_file.err, HasSubstr("--write"));
}

TEST_F(EvalVerb, ATranslatorKilledAtAnyMomentEndsWithTheSameBits) {
  write_copy_recipe(1000);
  ASSERT_EQ(run({"train", path("copy.toml"), "--out", path("whole")}).code, 0);
  EXPECT_EQ(kill_training(path("copy.toml"), path("killed"), 20), 20);
  ASSERT_EQ(run({"train", path("copy.toml"), "--out", path("killed")}).code, 0);
  for (const char* file : {"checkpoint-001000.safetensors", "model.safetensors", "validation.csv",
                           "heads.csv", "tokenizer.json"}) {
    EXPECT_EQ(bytes(std::string("killed/") + file), bytes(std::string("whole/") + file)) << file;
    EXPECT_FALSE(bytes(std::string("whole/") + file).empty()) << file;
  }
}

TEST_F(EvalVerb, ALanguageModelIsTestedOnAText) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "the quick brown fox " + std::to_string(i % 7) + " jumps; ";
  io::write_all(folder_ / "text.txt", text);
  io::write_all(folder_ / "recipe.toml", R"(
[data]
train = "text.txt"
[model]
layers = 1
width = 16
heads = 2
[train]
steps = 30
length = 32
batch = 4
rate = 1e-2
)");
  ASSERT_EQ(run({"train", path("recipe.toml"), "--out", path("run")}).code, 0);
  const Outcome outcome = run({"eval", "--model", path("run"), "--data", path("text.txt"), "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["tokens"].get<size_t>(), text.size() - 1);
  EXPECT_EQ(json["bytes"].get<size_t>(), text.size());
  EXPECT_NEAR(json["perplexity"].get<double>(), std::exp(json["loss"].get<double>()), 1e-9);
  EXPECT_NEAR(json["bits_per_byte"].get<double>(),
              json["loss"].get<double>() / std::log(2.0) * double(text.size() - 1) / double(text.size()),
              1e-9);
  // Shorter pieces see less.
  const Outcome shorter =
      run({"eval", "--model", path("run"), "--data", path("text.txt"), "--length", "2", "--json"});
  EXPECT_GT(nlohmann::json::parse(shorter.out)["loss"].get<double>(), json["loss"].get<double>());
}

TEST_F(EvalVerb, IsToldWhatIsMissing) {
  io::write_all(folder_ / "a", "x\n");
  io::write_all(folder_ / "b", "x\ny\n");
  EXPECT_EQ(run({"eval"}).code, 2);
  EXPECT_EQ(run({"eval", "--hypotheses", path("a")}).code, 2);
  const Outcome lengths = run({"eval", "--hypotheses", path("a"), "--references", path("b")});
  EXPECT_EQ(lengths.code, 1);
  EXPECT_THAT(lengths.err, HasSubstr("2 lines, but 1"));
  EXPECT_EQ(run({"eval", "--model", path("nowhere"), "--task", "sort"}).code, 1);
  EXPECT_EQ(run({"eval", "--hypotheses", path("a"), "--references", path("a"), "--tokenize", "intl"}).code,
            2);
}

TEST_F(EvalVerb, ALanguageModelAnswersTheTextsOfItsTask) {
  io::write_all(folder_ / "needle.toml", R"(
[data]
task = "needle"
symbols = 3
length = 3
texts = 500
valid_texts = 20
[model]
layers = 1
width = 32
heads = 2
[train]
steps = 30
length = 64
batch = 8
rate = 1e-2
validate_every = 15
)");
  const Outcome trained = run({"train", path("needle.toml"), "--out", path("needle"), "--json"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("exact 0."));
  EXPECT_TRUE(nlohmann::json::parse(trained.out).contains("best_accuracy"));
  const std::vector<std::string> task = {"eval",      "--model", path("needle"),  "--task", "needle",
                                         "--symbols", "3",       "--task-length", "3",      "--texts",
                                         "50"};
  std::vector<std::string> as_json = task;
  as_json.emplace_back("--json");
  const auto json = nlohmann::json::parse(run(as_json).out);
  EXPECT_EQ(json["texts"], 50);
  EXPECT_EQ(json["tokens"], 100);  // a symbol and the end
  EXPECT_THAT(run(task).out, HasSubstr("50 texts, "));
  const Outcome other = run({"eval", "--model", path("needle"), "--task", "copy"});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("the model's vocabulary is not that of a task with the text"));
  const Outcome answer = run({"run", "--model", path("needle"), "n1 k2 3 n7 ? k2", "--json"});
  EXPECT_EQ(nlohmann::json::parse(answer.out)["prompt_tokens"], 7) << answer.err;
}

TEST_F(EvalVerb, AClassifierNamesPictures) {
  io::Idx images{{60, 4, 4}, {}}, labels{{60}, {}};
  for (int i = 0; i < 60; ++i) {
    labels.values.push_back(static_cast<uint8_t>(i % 2));
    for (int pixel = 0; pixel < 16; ++pixel)
      images.values.push_back(static_cast<uint8_t>((pixel % 4 / 2 == i % 2 ? 200 : 20) + i % 7));
  }
  io::write_idx(folder_ / "images.gz", images);
  io::write_idx(folder_ / "labels", labels);
  io::write_all(folder_ / "pictures.toml", R"(
kind = "classifier"
[data]
train = "images.gz"
train_labels = "labels"
valid = "images.gz"
valid_labels = "labels"
[model]
patch = 2
layers = 1
width = 16
heads = 2
initialisation = "xavier_uniform"
[train]
steps = 40
batch = 12
rate = 1e-2
validate_every = 20
)");
  const Outcome trained = run({"train", path("pictures.toml"), "--out", path("pictures")});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("pictures/s"));
  EXPECT_THAT(trained.err, HasSubstr(", accuracy "));
  EXPECT_THAT(trained.out, HasSubstr("regard eval --model"));
  const std::vector<std::string> eval = {
      "eval", "--model", path("pictures"), "--images", path("images.gz"), "--labels", path("labels")};
  EXPECT_THAT(run(eval).out, HasSubstr("all           60  100.00%"));
  std::vector<std::string> as_json = eval;
  as_json.emplace_back("--json");
  const auto json = nlohmann::json::parse(run(as_json).out);
  EXPECT_EQ(json["accuracy"], 1.0);
  EXPECT_EQ(json["classes"][1]["right"], 30);
  const Outcome half = run({"eval", "--model", path("pictures"), "--images", path("images.gz")});
  EXPECT_EQ(half.code, 2);
  EXPECT_THAT(half.err, HasSubstr("--images and --labels go together"));
}

}  // namespace
}  // namespace regard::cli::testing

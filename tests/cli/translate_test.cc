// `regard translate` and `regard look` at a translator, as users run them: a small Transformer with random
// weights in a folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "program.h"
#include "regard/io/safetensors.h"
#include "tests/io/files.h"
#include "tests/support/letters_tokenizer.h"

namespace regard::cli::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int64_t kWidth = 8, kInner = 12, kVocabulary = 9, kLayers = 2;

class TranslateVerb : public ::testing::Test {
 protected:
  void SetUp() override {
    io::write_all(folder_ / "config.json", json{{"model_type", "transformer_translator"},
                                                {"vocab_size", kVocabulary},
                                                {"max_position_embeddings", 30},
                                                {"hidden_size", kWidth},
                                                {"tie_word_embeddings", false},
                                                {"bos_token_id", 0},
                                                {"eos_token_id", 1},
                                                {"pad_token_id", 2},
                                                {"num_encoder_layers", kLayers},
                                                {"num_decoder_layers", kLayers},
                                                {"num_attention_heads", 2},
                                                {"intermediate_size", kInner}}
                                               .dump());
    io::write_all(folder_ / "tokenizer.json", regard::testing::letters_tokenizer());
    matrix("model.encoder.embed_tokens", kVocabulary, kWidth);
    matrix("model.decoder.embed_tokens", kVocabulary, kWidth);
    linear("lm_head", kVocabulary, kWidth);
    made_.back().values[1] = -100;  // it never ends by itself: there is always something to see
    for (const std::string side : {"encoder", "decoder"}) {
      for (int64_t i = 0; i < kLayers; ++i) {
        const std::string in = "model." + side + ".layers." + std::to_string(i) + ".";
        attention(in + "self_attn");
        if (side == "decoder") attention(in + "encoder_attn");
        linear(in + "fc1", kInner, kWidth);
        linear(in + "fc2", kWidth, kInner);
        vector(in + "final_layer_norm.weight", kWidth, 1);
        vector(in + "final_layer_norm.bias", kWidth, 0);
      }
      vector("model." + side + ".layer_norm.weight", kWidth, 1);
      vector("model." + side + ".layer_norm.bias", kWidth, 0);
    }
    std::vector<io::Tensor> tensors;
    for (const Made& made : made_)
      tensors.push_back(io::view(made.name, made.shape, std::span<const float>(made.values)));
    io::write_safetensors(folder_ / "model.safetensors", tensors);
  }

  std::string model() const { return folder_.path().string(); }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  Outcome translate(std::vector<std::string> more, const std::string& in = {}) const {
    std::vector<std::string> arguments = {"translate", "--model", model()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    How how;
    how.input = in;
    return run(arguments, how);
  }

  io::TemporaryFolder folder_;

 private:
  struct Made {
    std::string name;
    std::vector<int64_t> shape;
    std::vector<float> values;
  };

  void add(const std::string& name, std::vector<int64_t> shape, size_t count, float middle, float spread) {
    std::vector<float> values(count);
    // Of our own, so that every library draws the same.
    for (float& value : values)
      value = middle + spread * (static_cast<float>(generator_() >> 8) * 0x1p-23F - 1.0F);
    made_.push_back({name, std::move(shape), std::move(values)});
  }
  void matrix(const std::string& name, int64_t rows, int64_t columns) {
    add(name + ".weight", {rows, columns}, static_cast<size_t>(rows * columns), 0, 1);
  }
  void vector(const std::string& name, int64_t size, float middle) {
    add(name, {size}, static_cast<size_t>(size), middle, 0.3F);
  }
  void linear(const std::string& name, int64_t rows, int64_t columns) {
    matrix(name, rows, columns);
    vector(name + ".bias", rows, 0);
  }
  void attention(const std::string& name) {
    for (const char* part : {".q_proj", ".k_proj", ".v_proj", ".out_proj"})
      linear(name + part, kWidth, kWidth);
    vector(name + "_layer_norm.weight", kWidth, 1);
    vector(name + "_layer_norm.bias", kWidth, 0);
  }

  std::mt19937 generator_{7};
  std::vector<Made> made_;
};

TEST_F(TranslateVerb, WritesALineForEachText) {
  const Outcome two = translate({"a b c", "e d", "--max-tokens", "6"});
  ASSERT_EQ(two.code, 0) << two.err;
  ASSERT_THAT(lines_of(two.out), SizeIs(2)) << two.out;
  const Outcome piped = translate({"--max-tokens", "6"}, "a b c\n\ne d\n");
  ASSERT_EQ(piped.code, 0) << piped.err;
  const std::vector<std::string> lines = lines_of(piped.out);
  ASSERT_THAT(lines, SizeIs(3)) << piped.out;
  EXPECT_EQ(lines[0], lines_of(two.out)[0]);
  EXPECT_EQ(lines[1], "");  // of an empty line
  EXPECT_EQ(lines[2], lines_of(two.out)[1]);
  io::write_all(folder_ / "texts.txt", std::string("a b c\n\ne d"));
  EXPECT_EQ(translate({"--max-tokens", "6", "--file", file("texts.txt")}).out, piped.out);
}

TEST_F(TranslateVerb, SaysWhichWordStandsForWhich) {
  const Outcome shown = translate({"a b c", "--max-tokens", "6", "--align", "--png", file("map.png")});
  ASSERT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("where each token looked (cross 0, the mean of its heads)"));
  EXPECT_THAT(shown.err, HasSubstr("map.png"));
  EXPECT_GT(std::filesystem::file_size(folder_ / "map.png"), 100U);
  const Outcome said =
      translate({"a b c", "--max-tokens", "6", "--align", "--json", "--layer", "1", "--head", "1"});
  ASSERT_EQ(said.code, 0) << said.err;
  const json object = json::parse(said.out);
  const json& alignment = object["alignment"];
  EXPECT_EQ(alignment["layer"], "cross 1");
  EXPECT_EQ(alignment["head"], 1);
  EXPECT_EQ(alignment["source_pieces"], (json{"a", "b", "c", "</s>"}));
  ASSERT_EQ(alignment["soft"].size(), object["ids"].size());
  ASSERT_GT(alignment["soft"].size(), 0U);
  for (size_t t = 0; t < alignment["soft"].size(); ++t) {
    const auto row = alignment["soft"][t].get<std::vector<double>>();
    ASSERT_THAT(row, SizeIs(4));
    double sum = 0;
    for (const double weight : row) sum += weight;
    EXPECT_NEAR(sum, 1.0, 1e-5);
    EXPECT_EQ(alignment["hard"][t][0], t);
    EXPECT_EQ(alignment["hard"][t][1], std::max_element(row.begin(), row.end()) - row.begin());
  }
}

TEST_F(TranslateVerb, SearchesOrDraws) {
  const auto score = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"a b c", "--json", "--max-tokens", "6"});
    const Outcome outcome = translate(more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return json::parse(outcome.out);
  };
  const json wide = score({"--beam", "5", "--length-penalty", "0"});
  EXPECT_EQ(wide["score"], wide["log_probability"]);
  const json even = score({"--beam", "5", "--length-penalty", "2"});
  EXPECT_GT(even["score"].get<double>(), even["log_probability"].get<double>());  // both below 0
  const json drawn = score({"--temperature", "2", "--seed", "3"});
  EXPECT_EQ(drawn, score({"--temperature", "2", "--seed", "3"}));
  EXPECT_NE(drawn["ids"], score({"--temperature", "2", "--seed", "4"})["ids"]);
}

TEST_F(TranslateVerb, LookShowsAllKindsOfAttention) {
  const Outcome shown = run({"look", "--model", model(), "a b c"});
  ASSERT_EQ(shown.code, 0) << shown.err;
  for (const char* part : {"encoder 0, mean of 2 heads", "decoder 0, mean of 2 heads",
                           "cross 0, mean of 2 heads", "How spread each head is"}) {
    EXPECT_THAT(shown.out, HasSubstr(part));
  }
  const Outcome said = run({"look", "--model", model(), "a b c", "--json"});
  ASSERT_EQ(said.code, 0) << said.err;
  const json object = json::parse(said.out);
  EXPECT_EQ(object["attention"].size(), 3U * kLayers);
  const Outcome head = run({"look", "--model", model(), "a b c", "--layer", "1", "--head", "0"});
  EXPECT_THAT(head.out, HasSubstr("cross 1, head 0"));
  const std::string npz = file("maps.npz");
  const Outcome kept = run({"look", "--model", model(), "a b c", "--npz", npz});
  ASSERT_EQ(kept.code, 0) << kept.err;
  EXPECT_THAT(kept.err, HasSubstr("the weights and entropies of all heads"));
  EXPECT_TRUE(std::filesystem::exists(npz));
}

TEST_F(TranslateVerb, MistakesAreOneSentence) {
  const auto refused = [&](const std::vector<std::string>& arguments, int code, const std::string& part) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(complaints(outcome), SizeIs(1)) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(part));
  };
  const std::string here = model();
  EXPECT_EQ(run({"translate", "a"}).code, 2);  // the help: --model is required
  refused({"translate", "--model", here, "a", "--png", "x.png"}, 2, "go with --align");
  refused({"translate", "--model", here, "a", "--beam", "2", "--temperature", "1"}, 2, "one or the other");
  std::string much;
  for (int i = 0; i < 32; ++i) much += "a ";
  refused({"translate", "--model", here, much}, 2, "33 tokens");
  refused({"translate", "--model", here, "a", "--align", "--layer", "2"}, 2, "layer 2");
  refused({"translate", "--model", here + "/none", "a"}, 1, "no such file or folder");
  refused({"look", "--model", here, "a", "--trace"}, 2, "--trace is not for translators");
  refused({"look", "--model", here, "a", "--layer", "0", "--head", "5"}, 2, "heads are numbered 0 to 1");
  refused({"run", "--model", here, "a"}, 1, "regard translate");
}

}  // namespace
}  // namespace regard::cli::testing

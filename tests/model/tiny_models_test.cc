// Small models with random weights, one per architecture, against transformers in float64
// (tests/golden/tiny-models).
#include "golden.h"
#include "regard/model/generate.h"
#include "regard/model/load.h"

namespace regard::model::testing {
namespace {

std::unique_ptr<Model> load_tiny(const std::string& name) {
  return load_weights(
      std::make_shared<const io::ModelFolder>(io::ModelFolder::open(golden_path("tiny-models/" + name))));
}

class TinyModel : public ::testing::TestWithParam<const char*> {};

TEST_P(TinyModel, LogitsHiddenStatesAndAttentionEqualTransformers) {
  const std::string name = GetParam();
  const auto model = load_tiny(name);
  const Golden golden("tiny-models/" + name + "/reference.safetensors");
  int cases = 0;
  for (; golden.has(std::to_string(cases) + ".in.input_ids"); ++cases) {
    const std::string prefix = std::to_string(cases) + ".";
    Input input{golden.at(prefix + "in.input_ids"), {}, {}};
    at::Tensor mask = at::ones_like(input.ids);
    if (golden.has(prefix + "in.attention_mask")) {
      mask = golden.at(prefix + "in.attention_mask");
      input.lengths = mask.sum(1);
    }
    Calls calls;
    layer::Context context;
    context.recorder = &calls;
    const at::Tensor real = mask.unsqueeze(2);
    const at::Tensor hidden = model->hidden(input, context);
    EXPECT_LE(max_difference(hidden * real, golden.at(prefix + "hidden_last") * real), 2e-5);
    EXPECT_LE(max_difference(model->logits(hidden) * real, golden.at(prefix + "logits") * real), 2e-5);
    for (int64_t layer = 0; layer < model->config().layers; ++layer) {
      const at::Tensor weights = golden.at(prefix + "attention." + std::to_string(layer));
      for (int64_t b = 0; b < input.ids.size(0); ++b) {
        EXPECT_LE(max_difference(calls.weights(layer, b) * mask[b].view({1, -1, 1}),
                                 weights[b] * mask[b].view({1, -1, 1})),
                  2e-6)
            << "layer " << layer;
      }
    }
  }
  EXPECT_GE(cases, 1);
}

class TinyDecoder : public TinyModel {};

TEST_P(TinyDecoder, CachedDecodingEqualsTheFullPass) {
  const auto model = load_tiny(GetParam());
  const Golden golden(std::string("tiny-models/") + GetParam() + "/reference.safetensors");
  const at::Tensor ids = golden.at("0.in.input_ids");
  layer::Context full;
  const at::Tensor want = model->hidden({ids, {}, {}}, full);
  // Token by token, and in chunks that straddle the window of the windowed model.
  for (const int64_t chunk : {1, 7, 23}) {
    const auto cache = model->make_cache(1, ids.size(1));
    layer::Context context;
    context.cache = cache.get();
    std::vector<at::Tensor> parts;
    while (context.position < ids.size(1)) {
      const int64_t count = std::min(chunk, ids.size(1) - context.position);
      parts.push_back(model->hidden({ids.narrow(1, context.position, count), {}, {}}, context));
      context.position += count;
    }
    EXPECT_LE(max_difference(at::cat(parts, 1), want), 2e-5) << "chunks of " << chunk;
  }
}

std::string test_name(const ::testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::erase(name, '-');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Architectures, TinyModel,
                         ::testing::Values("bert-mlm", "gpt2", "llama3-rope", "mistral-window16", "qwen2",
                                           "qwen3"),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Architectures, TinyDecoder,
                         ::testing::Values("gpt2", "llama3-rope", "mistral-window16", "qwen2", "qwen3"),
                         test_name);

TEST(Generate, RefusesAModelThatDoesNotPredictTheNextToken) {
  const auto bert = load_tiny("bert-mlm");
  EXPECT_THROW(generate(*bert, std::vector<int64_t>{1, 2}), std::invalid_argument);
}

TEST(Generate, EndsAtTheModelsLength) {
  const auto model = load_tiny("gpt2");
  GenerateOptions options;
  options.max_tokens = 1000;
  const Generation made = generate(*model, std::vector<int64_t>(60, 5), options);
  EXPECT_EQ(made.ids.size(),
            5U);  // positions 60 to 63 are read, the token after the last one is still chosen
  EXPECT_FALSE(made.stopped);
}

TEST(Generate, RefusesOptionsOutOfRange) {
  const auto model = load_tiny("gpt2");
  const std::vector<int64_t> ids = {1, 2};
  for (const Sampling& bad : {Sampling{.temperature = -1}, Sampling{.temperature = NAN},
                              Sampling{.top_k = -1}, Sampling{.top_p = 0}, Sampling{.top_p = 1.5},
                              Sampling{.min_p = 2}, Sampling{.repetition_penalty = 0}}) {
    GenerateOptions options;
    options.sampling = bad;
    EXPECT_THROW(generate(*model, ids, options), std::invalid_argument);
  }
}

TEST(ChooseToken, FollowsTemperatureTopKAndTopP) {
  const at::Tensor logits = at::log(at::tensor({0.1F, 0.4F, 0.2F, 0.3F}));
  EXPECT_EQ(choose_token(logits, {}, 0.99), 1);
  const Sampling plain{.temperature = 1.0};
  // Likeliest first: 1 up to 0.4, 3 up to 0.7, 2 up to 0.9, 0 above.
  EXPECT_EQ(choose_token(logits, plain, 0.39), 1);
  EXPECT_EQ(choose_token(logits, plain, 0.41), 3);
  EXPECT_EQ(choose_token(logits, plain, 0.71), 2);
  EXPECT_EQ(choose_token(logits, plain, 0.91), 0);
  const Sampling two{.temperature = 1.0, .top_k = 2};
  EXPECT_EQ(choose_token(logits, two, 0.999), 3);
  EXPECT_EQ(choose_token(logits, two, 0.56), 1);  // 4/7 = 0.571
  const Sampling nucleus{.temperature = 1.0, .top_p = 0.65};
  EXPECT_EQ(choose_token(logits, nucleus, 0.999), 3);
  const Sampling cold{.temperature = 0.05};
  EXPECT_EQ(choose_token(logits, cold, 0.9), 1);
  EXPECT_EQ(choose_token(at::tensor({1.0F, 2.0F, 2.0F}), {}, 0), 1);  // ties: the lowest id
  Sampling likely{.temperature = 1.0, .min_p = 0.8};                  // 0.4, 0.3 and 0.2 of 0.4: one is left
  EXPECT_EQ(choose_token(logits, likely, 0.999), 1);
  likely.min_p = 0.7;
  EXPECT_EQ(choose_token(logits, likely, 0.999), 3);
}

// As Hugging Face's RepetitionPenaltyLogitsProcessor: once for each token, towards less.
TEST(ChooseToken, ARepetitionPenaltyMakesSeenTokensLessLikely) {
  const at::Tensor logits = at::tensor({2.0F, 3.0F, -1.0F});
  const std::vector<int64_t> seen{1, 1, 1};
  EXPECT_EQ(choose_token(logits, {.repetition_penalty = 1.4}, 0, seen), 1);  // 3 / 1.4 = 2.14
  EXPECT_EQ(choose_token(logits, {.repetition_penalty = 1.6}, 0, seen), 0);  // 1.875
  const at::Tensor negative = at::tensor({-2.0F, -1.5F});
  EXPECT_EQ(choose_token(negative, {.repetition_penalty = 1.3}, 0, seen), 1);  // -1.95
  EXPECT_EQ(choose_token(negative, {.repetition_penalty = 1.4}, 0, seen), 0);  // -2.1
}

}  // namespace
}  // namespace regard::model::testing

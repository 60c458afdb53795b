// SmolLM2-135M-Instruct in 4-bit blocks against transformers on the expanded weights (tests/golden/smollm2).
#include <numeric>

#include "golden.h"
#include "regard/model/generate.h"

namespace regard::model::testing {
namespace {

std::vector<int64_t> as_vector(const at::Tensor& ids) {
  const int64_t* data = ids.const_data_ptr<int64_t>();
  return {data, data + ids.numel()};
}

class SmolLm2 : public ::testing::Test {
 protected:
  void SetUp() override {
    REGARD_NEEDS_MODEL("smollm2");
    loaded_ = installed("smollm2");
    model_ = dynamic_cast<Transformer*>(loaded_->model.get());
    ASSERT_NE(model_, nullptr);
  }

  // The whole text in one pass, without a cache.
  at::Tensor last_logits(const at::Tensor& ids) {
    layer::Context context;
    const at::Tensor hidden = model_->hidden(one(ids), context);
    return model_->logits(hidden.select(1, ids.size(0) - 1))[0];
  }

  const Golden golden_{"smollm2/smollm2.safetensors"};
  const std::vector<io::Json> prompts_ = json_lines("smollm2/prompts.jsonl");
  Loaded* loaded_ = nullptr;
  Transformer* model_ = nullptr;
};

TEST_F(SmolLm2, LogitsOfTheLastPositionEqualTransformers) {
  ASSERT_EQ(prompts_.size(), 6U);
  for (size_t i = 0; i < prompts_.size(); ++i) {
    const std::string prefix = "p" + std::to_string(i) + ".";
    const at::Tensor logits = last_logits(golden_.at(prefix + "ids"));
    const auto [top, ids] = logits.topk(50);
    EXPECT_LE(max_difference(logits.index_select(0, golden_.at(prefix + "top50_ids")),
                             golden_.at(prefix + "top50_logits")),
              2e-3)
        << "prompt " << i;
    EXPECT_LE(max_difference(top, golden_.at(prefix + "top50_logits")), 2e-3) << "prompt " << i;
    EXPECT_LE(max_difference(logits.logsumexp(0, true), golden_.at(prefix + "logsumexp")), 2e-3)
        << "prompt " << i;
    if (golden_.has(prefix + "logits")) {
      EXPECT_LE(max_difference(logits, golden_.at(prefix + "logits")), 2e-3);
    }
  }
}

TEST_F(SmolLm2, GreedyContinuationsAreExact) {
  for (const io::Json& prompt : prompts_) {
    GenerateOptions options;
    options.max_tokens = 48;
    options.prefill_chunk = 16;  // several chunks for the longer prompts
    const std::vector<int64_t> ids = prompt["ids"];
    const Generation made = generate(*model_, ids, options);
    EXPECT_EQ(made.ids, prompt["greedy_ids"].get<std::vector<int64_t>>()) << prompt["prompt"];
    EXPECT_EQ(loaded_->tokenizer->encode(prompt["prompt"].get<std::string>()).ids, ids);
  }
}

TEST_F(SmolLm2, RecordedAttentionEqualsTransformers) {
  Calls calls;
  layer::Context context;
  context.recorder = &calls;
  model_->hidden(one(golden_.at("attn.ids")), context);
  ASSERT_EQ(calls.size(), 30);
  for (const int64_t layer : {0, 10, 29}) {
    const std::string prefix = "attn.layer" + std::to_string(layer) + ".";
    EXPECT_LE(max_difference(calls.weights(layer), golden_.at(prefix + "weights")), 2e-5)
        << "layer " << layer;
    // In the published layout, rotated by halves, although the file permutes the rows. Values reach 20 and
    // more.
    EXPECT_LE(max_difference(calls[layer].q[0], golden_.at(prefix + "q_rope")), 1e-4) << "layer " << layer;
    EXPECT_LE(max_difference(calls[layer].k[0], golden_.at(prefix + "k_rope")), 1e-4) << "layer " << layer;
    EXPECT_LE(max_difference(calls[layer].v[0], golden_.at(prefix + "v")), 1e-4) << "layer " << layer;
  }
}

TEST_F(SmolLm2, EveryLayerEqualsTransformersRelativeToItsLargestValue) {
  layer::Context context;
  const auto states = model_->states(one(golden_.at("attn.ids")), context);
  const at::Tensor want = golden_.at("attn.layer_states");
  ASSERT_EQ(states.size(), 31U);
  for (int64_t i = 0; i < 31; ++i) {
    // Massive activations on the first token, up to 22,552: no absolute bound fits.
    const double largest = want[i].abs().max().item<double>();
    EXPECT_LE(max_difference(states[static_cast<size_t>(i)][0], want[i]), 2e-6 * largest + 1e-6)
        << "layer " << i;
  }
  const at::Tensor logits = model_->logits(states.back())[0];
  EXPECT_LE(
      max_difference(logits.gather(1, golden_.at("attn.logits_top50_ids")), golden_.at("attn.logits_top50")),
      2e-3);
}

TEST_F(SmolLm2, LossesOfAThousandTokensEqualTransformers) {
  layer::Context context;
  const std::vector<double> losses = token_losses(*model_, as_vector(golden_.at("ppl.ids")), context);
  ASSERT_EQ(losses.size(), 999U);
  const at::Tensor got = at::tensor(losses, at::kDouble);
  EXPECT_LE(max_difference(got, golden_.at("ppl.nll")), 2e-3);
  EXPECT_NEAR(got.mean().item<double>(), 4.366017714277942, 1e-5);
}

TEST_F(SmolLm2, CachedDecodingEqualsTheFullPassForAnySplit) {
  const at::Tensor ids = golden_.at("p4.ids");
  const int64_t length = ids.size(0);
  layer::Context full;
  const at::Tensor want = model_->hidden(one(ids), full)[0];
  for (const std::vector<int64_t>& split :
       {std::vector<int64_t>{length - 1, 1}, {1, 1, 1, length - 3}, {7, 20, 9}}) {
    ASSERT_EQ(std::accumulate(split.begin(), split.end(), int64_t{0}), length);
    const auto cache = model_->make_cache(1, length, kernel::CacheType::f32);
    layer::Context context;
    context.cache = cache.get();
    std::vector<at::Tensor> parts;
    for (const int64_t count : split) {
      parts.push_back(model_->hidden(one(ids.narrow(0, context.position, count)), context)[0]);
      context.position += count;
    }
    EXPECT_EQ(cache->length(), length);
    // Other tile shapes, other roundings; relative to the largest component.
    EXPECT_LE(max_difference(at::cat(parts), want), 1e-5 * want.abs().max().item<double>());
  }
}

TEST_F(SmolLm2, GenerationStopsAtAStopIdAndReportsEachToken) {
  const std::vector<int64_t> ids = prompts_[0]["ids"];
  const std::vector<int64_t> greedy = prompts_[0]["greedy_ids"];
  GenerateOptions options;
  options.max_tokens = 48;
  options.stop_ids = {greedy[4]};
  std::vector<int64_t> told;
  options.on_token = [&](int64_t id) {
    told.push_back(id);
    return true;
  };
  const Generation made = generate(*model_, ids, options);
  EXPECT_TRUE(made.stopped);
  EXPECT_EQ(made.ids, std::vector<int64_t>(greedy.begin(), greedy.begin() + 5));
  EXPECT_EQ(told, made.ids);
  options.on_token = [](int64_t) { return false; };
  EXPECT_EQ(generate(*model_, ids, options).ids.size(), 1U);
}

TEST_F(SmolLm2, SampledTextDependsOnTheSeedAlone) {
  const std::vector<int64_t> ids = prompts_[2]["ids"];
  GenerateOptions options;
  options.max_tokens = 12;
  options.sampling = {.temperature = 1.0, .top_k = 50, .top_p = 0.95, .seed = 7};
  const Generation first = generate(*model_, ids, options);
  EXPECT_EQ(generate(*model_, ids, options).ids, first.ids);
  options.sampling.seed = 8;
  EXPECT_NE(generate(*model_, ids, options).ids, first.ids);
}

TEST_F(SmolLm2, TooLongPromptIsRefusedWithBothNumbers) {
  const std::vector<int64_t> ids(8193, 1);
  try {
    generate(*model_, ids);
    FAIL() << "accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("8193"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("8192"), std::string::npos) << error.what();
  }
  EXPECT_THROW(generate(*model_, std::vector<int64_t>{}), std::invalid_argument);
}

}  // namespace
}  // namespace regard::model::testing

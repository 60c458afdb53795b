// all-MiniLM-L6-v2 against transformers (tests/golden/minilm).
#include "golden.h"
#include "regard/model/embed.h"

namespace regard::model::testing {
namespace {

class MiniLm : public ::testing::Test {
 protected:
  void SetUp() override {
    REGARD_NEEDS_MODEL("minilm");
    loaded_ = installed("minilm");
    model_ = dynamic_cast<Transformer*>(loaded_->model.get());
    ASSERT_NE(model_, nullptr);
  }
  static std::string key(size_t i, const std::string& what) { return "s" + std::to_string(i) + "." + what; }

  const Golden golden_{"minilm/minilm.safetensors"};
  const std::vector<io::Json> sentences_ = json_lines("minilm/sentences.jsonl");
  Loaded* loaded_ = nullptr;
  Transformer* model_ = nullptr;
};

TEST_F(MiniLm, HiddenStatesEqualTransformers) {
  ASSERT_EQ(sentences_.size(), 12U);
  int full = 0;
  for (size_t i = 0; i < sentences_.size(); ++i) {
    layer::Context context;
    const at::Tensor hidden = model_->hidden(one(golden_.at(key(i, "ids"))), context)[0];
    EXPECT_LE(max_difference(hidden.narrow(1, 0, 16), golden_.at(key(i, "hidden16"))), 2e-5)
        << "sentence " << i;
    if (golden_.has(key(i, "hidden"))) {
      ++full;
      EXPECT_LE(max_difference(hidden, golden_.at(key(i, "hidden"))), 2e-5) << "sentence " << i;
    }
  }
  EXPECT_EQ(full, 4);
}

TEST_F(MiniLm, EveryLayerEqualsTransformers) {
  layer::Context context;
  const auto states = model_->states(one(golden_.at("s0.ids")), context);
  ASSERT_EQ(states.size(), 7U);
  const at::Tensor want = golden_.at("s0.layer_states");
  for (int64_t i = 0; i < 7; ++i) {
    EXPECT_LE(max_difference(states[static_cast<size_t>(i)][0], want[i]), 2e-5) << "after layer " << i;
  }
}

TEST_F(MiniLm, RecordedAttentionEqualsTransformers) {
  for (const size_t i : {0, 1}) {
    Calls calls;
    layer::Context context;
    context.recorder = &calls;
    model_->hidden(one(golden_.at(key(i, "ids"))), context);
    ASSERT_EQ(calls.size(), 6);
    const at::Tensor weights = golden_.at(key(i, "attn"));
    for (int64_t layer = 0; layer < 6; ++layer) {
      EXPECT_LE(max_difference(calls.weights(layer), weights[layer]), 1e-5) << "layer " << layer;
      if (i != 0) continue;
      EXPECT_LE(max_difference(calls[layer].q[0], golden_.at("s0.q")[layer]), 2e-5) << "layer " << layer;
      EXPECT_LE(max_difference(calls[layer].k[0], golden_.at("s0.k")[layer]), 2e-5) << "layer " << layer;
      EXPECT_LE(max_difference(calls[layer].v[0], golden_.at("s0.v")[layer]), 2e-5) << "layer " << layer;
    }
  }
}

TEST_F(MiniLm, RecordingChangesNoBit) {
  const Input input = one(golden_.at("s3.ids"));
  layer::Context plain;
  Calls calls;
  layer::Context recorded;
  recorded.recorder = &calls;
  EXPECT_TRUE(at::equal(model_->hidden(input, plain), model_->hidden(input, recorded)));
}

TEST_F(MiniLm, PaddedBatchEqualsTransformers) {
  const at::Tensor mask = golden_.at("batch.mask");
  const Input input{golden_.at("batch.ids"), {}, mask.sum(1)};
  Calls calls;
  layer::Context context;
  context.recorder = &calls;
  const at::Tensor hidden = model_->hidden(input, context);
  EXPECT_LE(max_difference(hidden.narrow(2, 0, 16) * mask.unsqueeze(2), golden_.at("batch.hidden16")), 2e-5);
  const at::Tensor weights = golden_.at("batch.attn_layer0");
  for (int64_t b = 0; b < 4; ++b)
    EXPECT_LE(max_difference(calls.weights(0, b), weights[b]), 1e-5) << "text " << b;
  EXPECT_LE(max_difference(pool(hidden, input.lengths, Pooling::mean, true), golden_.at("batch.embedding")),
            2e-6);
}

TEST_F(MiniLm, WhatStandsInPaddingChangesNoBit) {
  const at::Tensor mask = golden_.at("batch.mask");
  const at::Tensor ids = golden_.at("batch.ids");
  const Input zeros{ids, {}, mask.sum(1)};
  const Input others{at::where(mask == 1, ids, at::full_like(ids, 2003)), {}, mask.sum(1)};
  layer::Context context;
  const at::Tensor a = model_->hidden(zeros, context) * mask.unsqueeze(2);
  const at::Tensor b = model_->hidden(others, context) * mask.unsqueeze(2);
  EXPECT_TRUE(at::equal(a, b));
}

TEST_F(MiniLm, PairOfTextsAndPoolerEqualTransformers) {
  Input input = one(golden_.at("pair.ids"));
  input.type_ids = golden_.at("pair.type_ids").unsqueeze(0);
  layer::Context context;
  const at::Tensor hidden = model_->hidden(input, context);
  EXPECT_LE(max_difference(hidden[0].narrow(1, 0, 16), golden_.at("pair.hidden16")), 2e-5);
  EXPECT_LE(max_difference(model_->pooled(hidden)[0], golden_.at("pair.pooler_output")), 2e-5);
}

TEST_F(MiniLm, EmbeddingsOfTextsAndTheirCosinesEqualTransformers) {
  std::vector<std::string> texts;
  for (const io::Json& sentence : sentences_) texts.push_back(sentence["text"]);
  EmbedOptions options;
  options.truncate = true;
  for (const int64_t batch_tokens : {1, 300, 4096}) {  // one by one, some padding, much padding
    options.batch_tokens = batch_tokens;
    const Embeddings embeddings = embed(*loaded_, texts, options);
    for (size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(embeddings.tokens[i], sentences_[i]["n_tokens"]) << "sentence " << i;
      EXPECT_LE(max_difference(embeddings.vectors[static_cast<int64_t>(i)], golden_.at(key(i, "embedding"))),
                2e-6)
          << "sentence " << i;
    }
    EXPECT_EQ(embeddings.truncated, std::vector<int64_t>{11});
    EXPECT_LE(max_difference(at::mm(embeddings.vectors, embeddings.vectors.t()), golden_.at("cosine")), 2e-6);
  }
}

// Weights rounded to 7 bits, inputs to 8: `embed --quantize`.
TEST_F(MiniLm, QuantizedEmbeddingsPointWhereThoseOfFloat32Do) {
  const Loaded quantized = load("minilm", {.precision = Precision::int8});
  std::vector<std::string> texts;
  for (const io::Json& sentence : sentences_) texts.push_back(sentence["text"]);
  EmbedOptions options;
  options.truncate = true;
  const at::Tensor vectors = embed(quantized, texts, options).vectors;
  for (size_t i = 0; i < texts.size(); ++i) {
    const double cosine =
        vectors[static_cast<int64_t>(i)].dot(golden_.at(key(i, "embedding"))).item<double>();
    EXPECT_GE(cosine, 0.995) << "sentence " << i;
    EXPECT_LT(cosine, 1 - 1e-7) << "sentence " << i;
  }
}

TEST_F(MiniLm, TooLongTextIsRefusedWithBothNumbers) {
  const std::vector<std::string> texts = {"short", sentences_[11]["text"]};
  try {
    embed(*loaded_, texts);
    FAIL() << "accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("256"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("text 1"), std::string::npos) << error.what();
  }
}

TEST_F(MiniLm, MalformedInputIsRefused) {
  layer::Context context;
  EXPECT_THROW(model_->hidden({}, context), std::invalid_argument);
  EXPECT_THROW(model_->hidden(one(at::full({2}, 30522, at::kLong)), context), std::invalid_argument);
  EXPECT_THROW(model_->hidden(one(at::full({2}, -1, at::kLong)), context), std::invalid_argument);
  EXPECT_THROW(model_->hidden(one(at::zeros({513}, at::kLong)), context), std::invalid_argument);
  Input input = one(at::full({4}, 101, at::kLong));
  input.lengths = at::full({1}, 5, at::kLong);
  EXPECT_THROW(model_->hidden(input, context), std::invalid_argument);
  EXPECT_FALSE(model_->has_head());
  EXPECT_THROW(model_->logits(at::zeros({1, 384})), std::invalid_argument);
  EXPECT_EQ(model_->make_cache(1, 8, kernel::CacheType::f32), nullptr);
}

}  // namespace
}  // namespace regard::model::testing

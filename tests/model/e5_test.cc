// multilingual-e5-small in 4-bit blocks against transformers on the expanded weights (tests/golden/e5).
#include "golden.h"
#include "regard/model/embed.h"

namespace regard::model::testing {
namespace {

class E5 : public ::testing::Test {
 protected:
  void SetUp() override {
    REGARD_NEEDS_MODEL("e5");
    loaded_ = installed("e5");
    model_ = dynamic_cast<Transformer*>(loaded_->model.get());
    ASSERT_NE(model_, nullptr);
  }

  // "s3.query". Appended piece by piece: GCC 12 warns of an overlap that cannot be in `"s" +
  // std::to_string(i)`.
  static std::string key(size_t i, const std::string& kind) {
    std::string name = "s";
    name += std::to_string(i);
    name += '.';
    name += kind;
    return name;
  }

  // Hidden states, attention and embedding of golden entry `name`.
  void compare(const std::string& name) {
    Calls calls;
    layer::Context context;
    context.recorder = &calls;
    const at::Tensor hidden = model_->hidden(one(golden_.at(name + ".ids")), context);
    EXPECT_LE(max_difference(hidden[0].narrow(1, 0, 16), golden_.at(name + ".hidden16")), 1e-5) << name;
    if (golden_.has(name + ".hidden")) {
      EXPECT_LE(max_difference(hidden[0], golden_.at(name + ".hidden")), 1e-5) << name;
    }
    EXPECT_LE(max_difference(pool(hidden, {}, Pooling::mean, true)[0], golden_.at(name + ".embedding")), 2e-6)
        << name;
    if (!golden_.has(name + ".attn")) return;
    ASSERT_EQ(calls.size(), 12);
    const at::Tensor weights = golden_.at(name + ".attn");
    for (int64_t layer = 0; layer < 12; ++layer) {
      EXPECT_LE(max_difference(calls.weights(layer), weights[layer]), 3e-5) << name << " layer " << layer;
    }
  }

  const Golden golden_{"e5/e5.safetensors"};
  const std::vector<io::Json> sentences_ = json_lines("e5/sentences.jsonl");
  Loaded* loaded_ = nullptr;
  Transformer* model_ = nullptr;
};

TEST_F(E5, HiddenStatesAttentionAndEmbeddingsEqualTransformers) {
  ASSERT_EQ(sentences_.size(), 14U);
  for (size_t i = 0; i < sentences_.size(); ++i) {
    for (const char* kind : {"raw", "query", "passage"}) compare(key(i, kind));
  }
}

TEST_F(E5, PiecesChosenByTheCallerEqualTransformers) {
  compare("forced.apple");
  compare("forced.love");
  EXPECT_EQ(as_tensor(loaded_->tokenizer->encode_pieces("我|吃|了|一个|苹果").ids)
                .equal(golden_.at("forced.apple.ids")),
            true);
}

TEST_F(E5, LayersAndProjectionsEqualTransformers) {
  Calls calls;
  layer::Context context;
  context.recorder = &calls;
  const auto states = model_->states(one(golden_.at("s0.raw.ids")), context);
  const at::Tensor want = golden_.at("s0.raw.layer_states16");
  ASSERT_EQ(states.size(), 13U);
  for (int64_t i = 0; i < 13; ++i) {
    EXPECT_LE(max_difference(states[static_cast<size_t>(i)][0].narrow(1, 0, 16), want[i]), 1e-5)
        << "layer " << i;
  }
  for (const int64_t i : {0, 1}) {
    const layer::AttentionCall& call = calls[i == 0 ? 0 : 11];
    EXPECT_LE(max_difference(call.q[0], golden_.at("s0.raw.q")[i]), 2e-5);
    EXPECT_LE(max_difference(call.k[0], golden_.at("s0.raw.k")[i]), 2e-5);
    EXPECT_LE(max_difference(call.v[0], golden_.at("s0.raw.v")[i]), 2e-5);
  }
}

TEST_F(E5, PaddedBatchEqualsTransformers) {
  const at::Tensor mask = golden_.at("batch.mask");
  const Input input{golden_.at("batch.ids"), {}, mask.sum(1)};
  Calls calls;
  layer::Context context;
  context.recorder = &calls;
  const at::Tensor hidden = model_->hidden(input, context);
  EXPECT_LE(max_difference(hidden.narrow(2, 0, 16) * mask.unsqueeze(2), golden_.at("batch.hidden16")), 1e-5);
  EXPECT_LE(max_difference(pool(hidden, input.lengths, Pooling::mean, true), golden_.at("batch.embedding")),
            2e-6);
  for (int64_t b = 0; b < 3; ++b) {
    EXPECT_LE(max_difference(calls.weights(0, b), golden_.at("batch.attn_layer0")[b]), 3e-5) << "text " << b;
  }
}

TEST_F(E5, EmbeddingsOfTextsEqualTransformersWithEachPrefix) {
  std::vector<std::string> texts;
  for (const io::Json& sentence : sentences_) texts.push_back(sentence["text"]);
  std::map<std::string, at::Tensor> vectors;
  for (const std::string kind : {"raw", "query", "passage"}) {
    EmbedOptions options;
    if (kind == "raw") options.prefix = std::string();
    if (kind == "passage")
      options.prefix = std::string("passage: ");  // "query: " is what the model has by itself
    const Embeddings embeddings = embed(*loaded_, texts, options);
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::string name = key(i, kind);
      EXPECT_EQ(embeddings.tokens[i], sentences_[i][kind]["n_tokens"]) << name;
      EXPECT_LE(max_difference(embeddings.vectors[static_cast<int64_t>(i)], golden_.at(name + ".embedding")),
                2e-6)
          << name;
    }
    EXPECT_LE(max_difference(embeddings.vectors.mm(embeddings.vectors.t()), golden_.at("cosine." + kind)),
              2e-6);
    vectors[kind] = embeddings.vectors;
  }
  EXPECT_LE(max_difference(vectors["query"].mm(vectors["passage"].t()), golden_.at("cosine.query_passage")),
            2e-6);
}

}  // namespace
}  // namespace regard::model::testing

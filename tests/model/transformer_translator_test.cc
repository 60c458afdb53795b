#include "regard/model/transformer_translator.h"

#include <cmath>

#include "golden.h"
#include "regard/layer/position.h"
#include "tests/model/translator_support.h"

namespace regard::model::testing {
namespace {

TransformerTranslatorConfig small(layer::NormPlace place, kernel::NormForm norm, bool tied) {
  TransformerTranslatorConfig config;
  config.vocabulary = 11;
  config.max_positions = 20;
  config.width = 12;
  config.heads = 3;
  config.encoder_layers = 2;
  config.decoder_layers = 3;
  config.feed_forward = 10;
  config.norm_place = place;
  config.norm = norm;
  config.tied = tied;
  return config;
}

struct Kind {
  const char* name;
  layer::NormPlace place;
  kernel::NormForm norm;
  bool tied;
};

constexpr Kind kKinds[] = {{"Harvard's", layer::NormPlace::pre, kernel::NormForm::harvard, false},
                           {"first", layer::NormPlace::post, kernel::NormForm::layer, true},
                           {"post, harvard", layer::NormPlace::post, kernel::NormForm::harvard, false},
                           {"pre, layer, tied", layer::NormPlace::pre, kernel::NormForm::layer, true}};

// By the formulas, one text at a time, in float64.
class Plainly {
 public:
  Plainly(const TransformerTranslatorConfig& config, const Plain& p) : config_(config), p_(p) {}

  at::Tensor logits(const at::Tensor& source, const at::Tensor& target) const {
    at::Tensor x = embedded(source, "encoder");
    for (int64_t i = 0; i < config_.encoder_layers; ++i) {
      const std::string in = "model.encoder.layers." + std::to_string(i) + ".";
      x = add(x, in + "self_attn_layer_norm",
              [&](const at::Tensor& y) { return attend(in + "self_attn", y, y, false); });
      x = add(x, in + "final_layer_norm", [&](const at::Tensor& y) { return feed(in, y); });
    }
    const at::Tensor memory = pre() ? norm("model.encoder.layer_norm", x) : x;
    x = embedded(target, "decoder");
    for (int64_t i = 0; i < config_.decoder_layers; ++i) {
      const std::string in = "model.decoder.layers." + std::to_string(i) + ".";
      x = add(x, in + "self_attn_layer_norm",
              [&](const at::Tensor& y) { return attend(in + "self_attn", y, y, true); });
      x = add(x, in + "encoder_attn_layer_norm",
              [&](const at::Tensor& y) { return attend(in + "encoder_attn", y, memory, false); });
      x = add(x, in + "final_layer_norm", [&](const at::Tensor& y) { return feed(in, y); });
    }
    if (pre()) x = norm("model.decoder.layer_norm", x);
    return config_.tied ? at::matmul(x, p_.at("model.shared.weight").t()) : apply(p_, "lm_head", x);
  }

 private:
  bool pre() const { return config_.norm_place == layer::NormPlace::pre; }

  at::Tensor embedded(const at::Tensor& ids, const std::string& side) const {
    const at::Tensor& table =
        p_.at(config_.tied ? "model.shared.weight" : "model." + side + ".embed_tokens.weight");
    at::Tensor positions = at::empty({ids.size(0), config_.width}, at::kDouble);
    for (int64_t p = 0; p < ids.size(0); ++p) {
      for (int64_t i = 0; i < config_.width; ++i) {
        const double angle =
            static_cast<double>(p) /
            std::pow(10000.0, static_cast<double>(i - i % 2) / static_cast<double>(config_.width));
        positions[p][i] = i % 2 == 0 ? std::sin(angle) : std::cos(angle);
      }
    }
    return table.index_select(0, ids) * std::sqrt(static_cast<double>(config_.width)) + positions;
  }

  at::Tensor norm(const std::string& name, const at::Tensor& x) const {
    const at::Tensor away = x - x.mean(-1, true);
    const at::Tensor squares = (away * away).sum(-1, true);
    const auto width = static_cast<double>(config_.width);
    const at::Tensor by = config_.norm == kernel::NormForm::harvard
                              ? at::sqrt(squares / (width - 1)) + config_.epsilon
                              : at::sqrt(squares / width + config_.epsilon);
    return away / by * p_.at(name + ".weight") + p_.at(name + ".bias");
  }

  at::Tensor add(const at::Tensor& x, const std::string& norm_name,
                 const std::function<at::Tensor(const at::Tensor&)>& part) const {
    return pre() ? x + part(norm(norm_name, x)) : norm(norm_name, x + part(x));
  }

  at::Tensor attend(const std::string& name, const at::Tensor& x, const at::Tensor& memory,
                    bool causal) const {
    const int64_t size = config_.width / config_.heads;
    const auto heads = [&](const std::string& part, const at::Tensor& of) {
      return apply(p_, name + part, of).view({of.size(0), config_.heads, size}).transpose(0, 1);
    };
    at::Tensor scores = at::matmul(heads(".q_proj", x), heads(".k_proj", memory).transpose(1, 2)) /
                        std::sqrt(static_cast<double>(size));
    if (causal) {
      const at::Tensor later = at::ones({x.size(0), x.size(0)}, at::kBool).triu(1);
      scores = scores.masked_fill(later, -INFINITY);
    }
    const at::Tensor mixed = at::matmul(at::softmax(scores, -1), heads(".v_proj", memory));
    return apply(p_, name + ".out_proj", mixed.transpose(0, 1).reshape({x.size(0), config_.width}));
  }

  at::Tensor feed(const std::string& in, const at::Tensor& x) const {
    return apply(p_, in + "fc2", at::relu(apply(p_, in + "fc1", x)));
  }

  const TransformerTranslatorConfig& config_;
  const Plain& p_;
};

TEST(TransformerTranslator, LogitsAndGradientsEqualThePlainFormulas) {
  for (const Kind& kind : kKinds) {
    const auto config = small(kind.place, kind.norm, kind.tied);
    const RandomWeights weights(3);
    const auto model = make_transformer_translator(config, weights);
    expect_equals_plain(
        *model, weights, padded_source(11), some_target(11),
        [&](const Plain& p, const Source& source, const at::Tensor& target) {
          std::vector<at::Tensor> all;
          for (int64_t b = 0; b < target.size(0); ++b) {
            all.push_back(Plainly(config, p).logits(
                source.ids[b].narrow(0, 0, source.lengths[b].item<int64_t>()), target[b]));
          }
          return at::stack(all);
        },
        kind.name);
  }
}

TEST(TransformerTranslator, StepsEqualTheWholeText) {
  for (const Kind& kind : kKinds) {
    const RandomWeights weights(4);
    expect_steps_equal_the_whole(
        *make_transformer_translator(small(kind.place, kind.norm, kind.tied), weights), kind.name);
  }
}

TEST(TransformerTranslator, PaddingAndLaterWordsChangeNothing) {
  for (const Kind& kind : kKinds) {
    const RandomWeights weights(5);
    const auto model = make_transformer_translator(small(kind.place, kind.norm, kind.tied), weights);
    expect_padding_changes_nothing(*model, kind.name);
    expect_no_leak(*model, kind.name);
  }
}

TEST(TransformerTranslator, DropsBySeedInTrainingAlone) {
  auto config = small(layer::NormPlace::pre, kernel::NormForm::harvard, false);
  for (const bool weights_alone : {false, true}) {
    (weights_alone ? config.attention_dropout : config.dropout) = 0.2;
    if (weights_alone) config.dropout = 0;
    const RandomWeights weights(6);
    expect_dropout_by_seed(*make_transformer_translator(config, weights), weights_alone ? "weights" : "all");
  }
}

// The recorder hears of every call under the number that attention_names() gives it, and what it can make of
// the calls is what the steps say.
TEST(TransformerTranslator, ARecorderHearsOfEncoderDecoderAndCrossAttention) {
  const RandomWeights weights(7);
  const auto model =
      make_transformer_translator(small(layer::NormPlace::pre, kernel::NormForm::harvard, false), weights);
  const std::vector<std::string> names = model->attention_names();
  EXPECT_EQ(names, (std::vector<std::string>{"encoder 0", "encoder 1", "decoder 0", "decoder 1", "decoder 2",
                                             "cross 0", "cross 1", "cross 2"}));
  const Source source{padded_source(11).ids.narrow(0, 0, 1), {}};
  const at::Tensor target = some_target(11).narrow(0, 0, 1);
  layer::Context context;
  const at::Tensor quiet = model->hidden(source, target, context);
  Calls calls;
  context.recorder = &calls;
  EXPECT_TRUE(model->hidden(source, target, context).equal(quiet));
  context.recorder = nullptr;
  ASSERT_EQ(calls.size(), static_cast<int64_t>(names.size()));
  std::map<int64_t, int64_t> place;
  for (int64_t i = 0; i < calls.size(); ++i) place[calls[i].layer] = i;
  std::vector<at::Tensor> cross;
  for (size_t i = 0; i < names.size(); ++i) {
    const at::Tensor map = calls.weights(place.at(static_cast<int64_t>(i)));
    const int64_t rows = names[i].starts_with("encoder") ? 7 : 6,
                  keys = names[i].starts_with("decoder") ? 6 : 7;
    ASSERT_EQ(map.sizes(), (std::vector<int64_t>{3, rows, keys})) << names[i];
    EXPECT_LE((map.sum(-1) - 1).abs().max().item<double>(), 1e-5) << names[i];
    if (names[i].starts_with("cross")) cross.push_back(map);
  }
  const at::Tensor all = at::cat(cross);  // [cross heads, T, S]
  const auto decoding = model->begin(source, 6, context);
  for (int64_t t = 0; t < 6; ++t) {
    const Translator::Step step = model->step(*decoding, target.select(1, t), true);
    EXPECT_LE(distance(step.weights[0], all.select(1, t)), 1e-5) << t;
  }
}

TEST(TransformerTranslator, MistakesAreNamed) {
  const RandomWeights weights(8);
  const auto model =
      make_transformer_translator(small(layer::NormPlace::pre, kernel::NormForm::harvard, false), weights);
  layer::Context context;
  const Source source = padded_source(11);
  EXPECT_THROW(
      model->hidden({source.ids, at::tensor(std::vector<int64_t>{8, 1, 1})}, some_target(11), context),
      std::invalid_argument);
  EXPECT_THROW(model->hidden(source, at::zeros({3, 21}, at::kLong), context), std::invalid_argument);
  EXPECT_THROW(model->hidden(source, at::zeros({3, 0}, at::kLong), context), std::invalid_argument);
  EXPECT_THROW(model->begin(source, 0, context), std::invalid_argument);
  const auto decoding = model->begin(source, 3, context);
  EXPECT_THROW(model->step(*decoding, at::full({3}, 11, at::kLong)), std::invalid_argument);
  EXPECT_THROW(decoding->select(at::tensor(std::vector<int64_t>{0, -1})), std::invalid_argument);
}

}  // namespace
}  // namespace regard::model::testing

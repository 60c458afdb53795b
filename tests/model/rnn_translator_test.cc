#include "regard/model/rnn_translator.h"

#include <tuple>

#include "golden.h"
#include "regard/model/gru.h"
#include "tests/model/translator_support.h"

namespace regard::model::testing {
namespace {

// torch's GRU parameters by our names.
void set_gru(RandomWeights& weights, const Golden& golden, const std::string& name, const std::string& end) {
  const auto f32 = [&](const std::string& of) {
    return golden.at("w." + of + end).to(at::kFloat).requires_grad_();
  };
  weights.set(name + ".input.weight", f32("weight_ih_l"));
  weights.set(name + ".hidden.weight", f32("weight_hh_l"));
  weights.set(name + ".input.bias", f32("bias_ih_l"));
  weights.set(name + ".hidden.bias", f32("bias_hh_l"));
}

TEST(Gru, StepsEqualTorch) {
  const Golden golden("layers/gru_1layer.safetensors");
  RandomWeights weights(0);
  set_gru(weights, golden, "gru", "0");
  const Gru gru("gru", 5, 7, weights);
  const at::Tensor x = golden.at("in.x").to(at::kFloat).requires_grad_();
  const at::Tensor h0 = golden.at("in.h0").to(at::kFloat).requires_grad_();
  const at::Tensor gates = gru.gates(x);
  at::Tensor state = h0[0];
  std::vector<at::Tensor> states;
  for (int64_t t = 0; t < 6; ++t) states.push_back(state = gru.step(gates.select(1, t), state));
  const at::Tensor out = at::stack(states, 1);
  EXPECT_LE(distance(out, golden.at("out.out")), 1e-5);
  EXPECT_LE(distance(state.unsqueeze(0), golden.at("out.h_n")), 1e-5);
  ((out * golden.at("dout.out").to(at::kFloat)).sum() +
   (state * golden.at("dout.h_n")[0].to(at::kFloat)).sum())
      .backward();
  EXPECT_LE(distance(x.grad(), golden.at("gradin.x")), 1e-5);
  EXPECT_LE(distance(h0.grad(), golden.at("gradin.h0")), 1e-5);
  EXPECT_LE(distance(weights["gru.hidden.weight"].grad(), golden.at("gradw.weight_hh_l0")), 1e-5);
  EXPECT_LE(distance(weights["gru.hidden.bias"].grad(), golden.at("gradw.bias_hh_l0")), 1e-5);
}

TEST(Gru, TwoLayersFromBothSidesEqualTorch) {
  const Golden golden("layers/gru_2layer_bidirectional.safetensors");
  RandomWeights weights(0);
  for (const std::string layer : {"0", "1"}) {
    set_gru(weights, golden, "gru." + layer + ".forward", layer);
    set_gru(weights, golden, "gru." + layer + ".backward", layer + "_reverse");
  }
  const BidirectionalGru gru("gru", 2, 5, 7, weights);
  for (const bool padded : {false, true}) {
    const at::Tensor x = golden.at("in.x").to(at::kFloat).requires_grad_();
    const at::Tensor h0 = golden.at("in.h0").to(at::kFloat).requires_grad_();
    // The same with two columns of padding.
    const at::Tensor in = padded ? at::cat({x, at::ones({2, 2, 5})}, 1) : x;
    const at::Tensor lengths = padded ? at::full({2}, 6, at::kLong) : at::Tensor();
    layer::Context context;
    const auto got = gru.forward(in, lengths, h0, 0.0, context);
    EXPECT_LE(distance(got.states.narrow(1, 0, 6), golden.at("out.out")), 1e-5);
    EXPECT_LE(distance(got.last, golden.at("out.h_n")), 1e-5);
    ((got.states.narrow(1, 0, 6) * golden.at("dout.out").to(at::kFloat)).sum() +
     (got.last * golden.at("dout.h_n").to(at::kFloat)).sum())
        .backward();
    EXPECT_LE(distance(x.grad(), golden.at("gradin.x")), 1e-5);
    EXPECT_LE(distance(h0.grad(), golden.at("gradin.h0")), 1e-5);
  }
}

RnnTranslatorConfig small(RnnAttention attention, bool feeding = false) {
  RnnTranslatorConfig config;
  config.vocabulary = 11;
  config.max_positions = 20;
  config.embedding = 6;
  config.width = 8;
  config.encoder_width = attention == RnnAttention::dot || attention == RnnAttention::none ? 4 : 5;
  config.encoder_layers = 2;
  config.decoder_layers = 2;
  config.readout = 7;
  config.attention_size = 9;
  config.attention = attention;
  config.input_feeding = feeding;
  return config;
}

struct Kind {
  const char* name;
  RnnAttention attention;
  bool feeding;
};

constexpr Kind kKinds[] = {
    {"none", RnnAttention::none, false},        {"additive", RnnAttention::additive, false},
    {"dot", RnnAttention::dot, false},          {"general", RnnAttention::general, false},
    {"concat", RnnAttention::concat, false},    {"general, fed", RnnAttention::general, true},
    {"concat, fed", RnnAttention::concat, true}};

at::Tensor plain_step(const Plain& p, const std::string& name, const at::Tensor& gates, const at::Tensor& h) {
  const auto own = apply(p, name + ".hidden", h).chunk(3, -1);
  const auto in = gates.chunk(3, -1);
  const at::Tensor r = at::sigmoid(in[0] + own[0]), z = at::sigmoid(in[1] + own[1]);
  return (1 - z) * at::tanh(in[2] + r * own[2]) + z * h;
}

// One text at a time, one word at a time, by the formulas.
at::Tensor plain_logits(const RnnTranslatorConfig& config, const Plain& p, const Source& source,
                        const at::Tensor& target) {
  std::vector<at::Tensor> all;
  for (int64_t b = 0; b < source.ids.size(0); ++b) {
    const int64_t length = source.lengths[b].item<int64_t>();
    at::Tensor x = p.at("encoder.embedding.weight").index_select(0, source.ids[b].narrow(0, 0, length));
    at::Tensor last;
    for (int64_t i = 0; i < config.encoder_layers; ++i) {
      const std::string name = "encoder.layers." + std::to_string(i);
      std::vector<at::Tensor> there(static_cast<size_t>(length)), back(static_cast<size_t>(length));
      at::Tensor h = at::zeros({config.encoder_width}, at::kDouble), g = h;
      for (int64_t t = 0; t < length; ++t) {
        h = there[static_cast<size_t>(t)] =
            plain_step(p, name + ".forward", apply(p, name + ".forward.input", x[t]), h);
        const int64_t u = length - 1 - t;
        g = back[static_cast<size_t>(u)] =
            plain_step(p, name + ".backward", apply(p, name + ".backward.input", x[u]), g);
      }
      x = at::cat({at::stack(there), at::stack(back)}, 1);
      last = at::cat({h, g});
    }
    std::vector<at::Tensor> states;
    for (int64_t i = 0; i < config.decoder_layers; ++i)
      states.push_back(at::tanh(apply(p, "decoder.initial." + std::to_string(i), last)));
    at::Tensor fed = at::zeros({config.readout}, at::kDouble);
    const auto look = [&](const at::Tensor& s) {
      at::Tensor score;
      switch (config.attention) {
        case RnnAttention::additive:
          score = at::matmul(
              at::tanh(apply(p, "attention.query", s, false) + apply(p, "attention.key", x, false)),
              p.at("attention.vector.weight")[0]);
          break;
        case RnnAttention::concat:
          score = at::matmul(
              at::tanh(apply(p, "attention", at::cat({s.expand({length, config.width}), x}, 1), false)),
              p.at("attention.vector.weight")[0]);
          break;
        case RnnAttention::general:
          score = at::matmul(apply(p, "attention.key", x, false), s);
          break;
        default:
          score = at::matmul(x, s);
      }
      return at::matmul(at::softmax(score, 0), x);
    };
    std::vector<at::Tensor> rows;
    for (int64_t t = 0; t < target.size(1); ++t) {
      const at::Tensor word = p.at("decoder.embedding.weight").index_select(0, target[b].narrow(0, t, 1))[0];
      at::Tensor gates = apply(p, "decoder.layers.0.input", word);
      at::Tensor found;
      if (config.attention == RnnAttention::additive) {
        found = look(states.back());
        gates = gates + apply(p, "attention.gates", found, false);
      }
      if (config.input_feeding) gates = gates + apply(p, "attention.gates", fed, false);
      for (size_t i = 0; i < states.size(); ++i) {
        const std::string name = "decoder.layers." + std::to_string(i);
        if (i > 0) gates = apply(p, name + ".input", states[i - 1]);
        states[i] = plain_step(p, name, gates, states[i]);
      }
      at::Tensor sum = apply(p, "readout.state", states.back()) + apply(p, "readout.word", word, false);
      if (config.attention != RnnAttention::none) {
        if (!found.defined()) found = look(states.back());
        sum = sum + apply(p, "attention.readout", found, false);
      }
      fed = at::tanh(sum);
      rows.push_back(apply(p, "generator", fed));
    }
    all.push_back(at::stack(rows));
  }
  return at::stack(all);
}

TEST(RnnTranslator, LogitsAndGradientsEqualThePlainFormulas) {
  for (const Kind& kind : kKinds) {
    const RnnTranslatorConfig config = small(kind.attention, kind.feeding);
    const RandomWeights weights(3);
    const auto model = make_rnn_translator(config, weights);
    expect_equals_plain(
        *model, weights, padded_source(11), some_target(11),
        [&](const Plain& p, const Source& source, const at::Tensor& target) {
          return plain_logits(config, p, source, target);
        },
        kind.name);
  }
}

TEST(RnnTranslator, WithoutAttentionItIsThePlainModelBitForBit) {
  const RandomWeights plain(9);
  const auto model = make_rnn_translator(small(RnnAttention::none), plain);
  for (const Kind& kind : kKinds) {
    if (kind.attention != RnnAttention::dot && kind.attention != RnnAttention::none) continue;
    const RandomWeights weights(9);
    make_rnn_translator(small(kind.attention), weights);
    ASSERT_GE(weights.names().size(), plain.names().size());
    for (size_t i = 0; i < plain.names().size(); ++i) {
      ASSERT_EQ(weights.names()[i], plain.names()[i]) << kind.name;
      EXPECT_TRUE(weights[plain.names()[i]].equal(plain[plain.names()[i]])) << kind.name;
    }
    EXPECT_EQ(weights.names().size() == plain.names().size(), kind.attention == RnnAttention::none);
  }
  // The plain model in libtorch's own calls.
  const Source source{padded_source(11).ids, {}};
  const at::Tensor target = some_target(11);
  const auto gru = [&](const at::Tensor& x, const at::Tensor& first, const std::vector<std::string>& names) {
    std::vector<at::Tensor> parameters;
    for (const std::string& name : names)
      for (const char* end : {".input.weight", ".hidden.weight", ".input.bias", ".hidden.bias"})
        parameters.push_back(plain[name + end]);
    return at::gru(x, first, parameters, true, 1, 0.0, false, names.size() == 2, true);
  };
  at::Tensor x = at::embedding(plain["encoder.embedding.weight"], source.ids), last;
  for (const std::string i : {"0", "1"}) {
    std::tie(x, last) = gru(x, at::zeros({2, 3, 4}),
                            {"encoder.layers." + i + ".forward", "encoder.layers." + i + ".backward"});
  }
  const at::Tensor summary = last.transpose(0, 1).reshape({3, 8});
  const at::Tensor words = at::embedding(plain["decoder.embedding.weight"], target);
  at::Tensor y = words;
  for (const std::string i : {"0", "1"}) {
    const at::Tensor first = at::tanh(at::linear(summary, plain["decoder.initial." + i + ".weight"],
                                                 plain["decoder.initial." + i + ".bias"]));
    y = std::get<0>(gru(y, first.unsqueeze(0), {"decoder.layers." + i}));
  }
  const at::Tensor out = at::tanh(at::linear(y, plain["readout.state.weight"], plain["readout.state.bias"]) +
                                  at::linear(words, plain["readout.word.weight"]));
  layer::Context context;
  EXPECT_TRUE(model->hidden(source, target, context).equal(out));
  EXPECT_TRUE(model->logits(out).equal(at::linear(out, plain["generator.weight"], plain["generator.bias"])));
}

TEST(RnnTranslator, StepsEqualTheWholeText) {
  for (const Kind& kind : kKinds) {
    const RandomWeights weights(4);
    expect_steps_equal_the_whole(*make_rnn_translator(small(kind.attention, kind.feeding), weights),
                                 kind.name);
  }
}

TEST(RnnTranslator, PaddingAndLaterWordsChangeNothing) {
  for (const Kind& kind : kKinds) {
    const RandomWeights weights(5);
    const auto model = make_rnn_translator(small(kind.attention, kind.feeding), weights);
    expect_padding_changes_nothing(*model, kind.name);
    expect_no_leak(*model, kind.name);
  }
}

TEST(RnnTranslator, DropsBySeedInTrainingAlone) {
  for (const Kind& kind : kKinds) {
    RnnTranslatorConfig config = small(kind.attention, kind.feeding);
    config.dropout = 0.3;
    const RandomWeights weights(6);
    expect_dropout_by_seed(*make_rnn_translator(config, weights), kind.name);
  }
}

// Where a step waits for the one before, each step makes its own calls.
TEST(RnnTranslator, DropsBetweenTheLayersOfBothStacks) {
  for (const Kind& kind : kKinds) {
    RnnTranslatorConfig config = small(kind.attention, kind.feeding);
    config.encoder_layers = 2;
    config.decoder_layers = 3;
    config.dropout = 0.3;
    const RandomWeights weights(6);
    const auto model = make_rnn_translator(config, weights);
    layer::Context context;
    context.training = true;
    const at::Tensor target = some_target(config.vocabulary);
    model->hidden(padded_source(config.vocabulary), target, context);
    const bool by_steps = kind.feeding || kind.attention == RnnAttention::additive;
    const auto steps = static_cast<uint64_t>(target.size(1));
    const uint64_t readouts = kind.feeding ? steps : 1;
    EXPECT_EQ(context.dropout_calls, 2 + 1 + 2 * (by_steps ? steps : 1) + readouts) << kind.name;
  }
}

TEST(RnnTranslator, OneTableServesSourceTargetAndGenerator) {
  RnnTranslatorConfig config = small(RnnAttention::additive);
  config.tied = true;
  config.readout = config.embedding;
  const RandomWeights weights(7);
  const auto model = make_rnn_translator(config, weights);
  EXPECT_TRUE(weights.has("embedding.weight"));
  EXPECT_FALSE(weights.has("generator.weight"));
  const at::Tensor x = at::randn({2, 6});
  EXPECT_LE(distance(model->logits(x), at::matmul(x, weights["embedding.weight"].t())), 1e-6);
}

TEST(RnnTranslator, MistakesAreNamed) {
  const RandomWeights weights(8);
  const auto model = make_rnn_translator(small(RnnAttention::additive), weights);
  layer::Context context;
  const Source source = padded_source(11);
  const at::Tensor target = some_target(11);
  EXPECT_THROW(model->hidden({at::zeros({1, 21}, at::kLong), {}}, target, context), std::invalid_argument);
  EXPECT_THROW(model->hidden({source.ids, at::tensor(std::vector<int64_t>{7, 0, 1})}, target, context),
               std::invalid_argument);
  EXPECT_THROW(model->hidden(source, target.narrow(0, 0, 2), context), std::invalid_argument);
  EXPECT_THROW(model->hidden({source.ids + 8, source.lengths}, target, context), std::invalid_argument);
  EXPECT_THROW(model->begin(source, 21, context), std::invalid_argument);
  const auto decoding = model->begin(source, 3, context);
  EXPECT_THROW(model->step(*decoding, at::zeros({2}, at::kLong)), std::invalid_argument);
  EXPECT_THROW(decoding->select(at::tensor(std::vector<int64_t>{3})), std::invalid_argument);
  const RandomWeights others(8);
  const auto other = make_rnn_translator(small(RnnAttention::none), others);
  EXPECT_EQ(other->cross_heads(), 0);
}

}  // namespace
}  // namespace regard::model::testing

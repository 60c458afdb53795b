#include "regard/model/translate.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "golden.h"
#include "regard/io/atomic_file.h"
#include "regard/io/error.h"
#include "regard/model/load_translator.h"
#include "regard/model/rnn_translator.h"
#include "regard/model/transformer_translator.h"
#include "tests/model/translator_support.h"
#include "tests/support/letters_tokenizer.h"

namespace regard::model::testing {
namespace {

constexpr int64_t kBos = 0, kEos = 1, kPad = 2;

TransformerTranslatorConfig tiny(int64_t vocabulary) {
  TransformerTranslatorConfig config;
  config.vocabulary = vocabulary;
  config.max_positions = 40;
  config.width = 8;
  config.heads = 2;
  config.encoder_layers = config.decoder_layers = 1;
  config.feed_forward = 8;
  config.bos = kBos;
  config.eos = kEos;
  config.pad = kPad;
  return config;
}

RnnTranslatorConfig tiny_rnn(int64_t vocabulary) {
  RnnTranslatorConfig config;
  config.vocabulary = vocabulary;
  config.max_positions = 40;
  config.embedding = config.width = config.readout = config.attention_size = 8;
  config.encoder_width = 4;
  config.attention = RnnAttention::additive;
  config.bos = kBos;
  config.eos = kEos;
  config.pad = kPad;
  return config;
}

TranslateOptions options(int64_t beam, int64_t max_tokens) {
  TranslateOptions options;
  options.bos = kBos;
  options.eos = kEos;
  options.pad = kPad;
  options.beam = beam;
  options.max_tokens = max_tokens;
  return options;
}

const std::vector<std::vector<int64_t>> kSources = {{3, 4, 5, 6, 1},       {7, 1}, {8, 8, 3, 1}, {1},
                                                    {6, 5, 4, 3, 7, 8, 1}, {4, 1}};

// log P of what may be written next, the whole text read again each time.
at::Tensor next_of(Translator& model, const std::vector<int64_t>& source, const std::vector<int64_t>& ids) {
  std::vector<int64_t> read = {kBos};
  read.insert(read.end(), ids.begin(), ids.end());
  layer::Context context;
  const at::Tensor hidden =
      model.hidden(pad_sources({source}, kPad), at::tensor(read, at::kLong).unsqueeze(0), context);
  at::Tensor all = at::log_softmax(model.logits(hidden.select(1, hidden.size(1) - 1)), -1)[0].to(at::kDouble);
  all[kBos] = all[kPad] = -INFINITY;
  return all;
}

TEST(Translate, ABeamOfOneIsGreedy) {
  const at::NoGradGuard no_grad;
  const RandomWeights one(1, 0.8), two(2, 0.8);
  const auto transformer = make_transformer_translator(tiny(9), one);
  const auto rnn = make_rnn_translator(tiny_rnn(9), two);
  size_t written = 0;
  for (Translator* model : {transformer.get(), rnn.get()}) {
    const std::vector<Translation> got = translate(*model, kSources, options(1, 12));
    ASSERT_EQ(got.size(), kSources.size());
    for (size_t i = 0; i < kSources.size(); ++i) {
      std::vector<int64_t> ids;
      double log_probability = 0;
      bool finished = false;
      while (!finished && ids.size() < 12) {
        const at::Tensor next = next_of(*model, kSources[i], ids);
        const int64_t id = next.argmax().item<int64_t>();
        log_probability += next[id].item<double>();
        finished = id == kEos;
        if (!finished) ids.push_back(id);
      }
      EXPECT_EQ(got[i].ids, ids) << i;
      EXPECT_EQ(got[i].finished, finished) << i;
      EXPECT_NEAR(got[i].log_probability, log_probability, 1e-4) << i;
      written += ids.size();
    }
  }
  EXPECT_GT(written, 20U);  // it did write something
}

// Every text of at most `limit` tokens that ends, and its log P.
void all_texts(Translator& model, const std::vector<int64_t>& source, int64_t limit,
               const std::vector<int64_t>& begun, double log_probability, std::vector<Hypothesis>& out) {
  const at::Tensor next = next_of(model, source, begun);
  const double ends = log_probability + next[kEos].item<double>();
  if (static_cast<int64_t>(begun.size()) < limit) out.push_back({begun, ends, true, 0});
  if (static_cast<int64_t>(begun.size()) + 1 >= limit) return;
  for (int64_t id = 0; id < next.size(0); ++id) {
    if (id == kBos || id == kEos || id == kPad) continue;
    std::vector<int64_t> grown = begun;
    grown.push_back(id);
    all_texts(model, source, limit, grown, log_probability + next[id].item<double>(), out);
  }
}

TEST(Translate, AWideBeamFindsTheBestOfAllTexts) {
  const at::NoGradGuard no_grad;
  const RandomWeights weights(4, 0.8);
  const auto model = make_transformer_translator(tiny(6), weights);  // three words
  for (const double alpha : {0.0, 0.6, 2.0}) {
    TranslateOptions wide = options(200, 4);
    wide.length_penalty = alpha;
    const std::vector<std::vector<int64_t>> sources = {{3, 4, 1}, {5, 1}, {4, 4, 3, 1}};
    const std::vector<Translation> got = translate(*model, sources, wide);
    for (size_t i = 0; i < sources.size(); ++i) {
      std::vector<Hypothesis> all;
      all_texts(*model, sources[i], 4, {}, 0, all);
      ASSERT_EQ(all.size(), 1U + 3 + 9 + 27);
      for (Hypothesis& text : all) {
        text.score =
            text.log_probability / std::pow((5.0 + static_cast<double>(text.ids.size()) + 1) / 6, alpha);
      }
      const auto best = std::max_element(all.begin(), all.end(),
                                         [](const auto& a, const auto& b) { return a.score < b.score; });
      EXPECT_EQ(got[i].ids, best->ids) << i << ", " << alpha;
      EXPECT_NEAR(got[i].score, best->score, 1e-4);
      EXPECT_TRUE(got[i].finished);
    }
  }
}

TEST(Translate, ATextsResultDoesNotDependOnTheOthers) {
  const RandomWeights one(1, 0.8), two(2, 0.8);
  const auto transformer = make_transformer_translator(tiny(9), one);
  const auto rnn = make_rnn_translator(tiny_rnn(9), two);
  for (Translator* model : {transformer.get(), rnn.get()}) {
    for (const int64_t beam : {1, 3}) {
      const std::vector<Translation> together = translate(*model, kSources, options(beam, 0));
      TranslateOptions few = options(beam, 0);
      few.batch_rows = 2 * beam;
      const std::vector<Translation> in_pairs = translate(*model, kSources, few);
      for (size_t i = 0; i < kSources.size(); ++i) {
        const std::vector<Translation> alone = translate(*model, {kSources[i]}, options(beam, 0));
        EXPECT_EQ(together[i].ids, alone[0].ids) << i;
        EXPECT_EQ(together[i].ids, in_pairs[i].ids) << i;
        EXPECT_NEAR(together[i].score, alone[0].score, 1e-4);
        EXPECT_LE(together[i].ids.size(), 2 * kSources[i].size() + 10);
      }
    }
  }
}

TEST(Translate, DrawsByTheSeedAndTheTextsPlaceAlone) {
  const RandomWeights weights(1, 0.3);
  const auto model = make_transformer_translator(tiny(9), weights);
  const std::vector<std::vector<int64_t>> same(6, kSources[0]);
  TranslateOptions drawn = options(1, 8);
  drawn.sampling = Sampling{.temperature = 1.0, .seed = 5};
  const auto first = translate(*model, same, drawn), again = translate(*model, same, drawn);
  TranslateOptions few = drawn;
  few.batch_rows = 1;
  const auto one_by_one = translate(*model, same, few);
  drawn.sampling->seed = 6;
  const auto other = translate(*model, same, drawn);
  size_t differ = 0, seeds_differ = 0;
  for (size_t i = 0; i < same.size(); ++i) {
    EXPECT_EQ(first[i].ids, again[i].ids);
    EXPECT_EQ(first[i].ids, one_by_one[i].ids);
    differ += first[i].ids != first[0].ids ? 1 : 0;
    seeds_differ += first[i].ids != other[i].ids ? 1 : 0;
  }
  EXPECT_GT(differ, 2U);  // texts draw apart
  EXPECT_GT(seeds_differ, 2U);
  drawn.sampling->temperature = 0;  // nothing is left to chance
  EXPECT_EQ(translate(*model, kSources, drawn)[4].ids, translate(*model, kSources, options(1, 8))[4].ids);
}

TEST(Translate, SaysWhereEachTokenLooked) {
  const at::NoGradGuard no_grad;
  const RandomWeights one(1, 0.8), two(2, 0.8);
  const auto transformer = make_transformer_translator(tiny(9), one);
  const auto rnn = make_rnn_translator(tiny_rnn(9), two);
  for (Translator* model : {transformer.get(), rnn.get()}) {
    TranslateOptions asked = options(3, 9);
    asked.weights = true;
    const std::vector<Translation> got = translate(*model, kSources, asked);
    for (size_t i = 0; i < kSources.size(); ++i) {
      const auto tokens = static_cast<int64_t>(got[i].ids.size());
      const auto keys = static_cast<int64_t>(kSources[i].size());
      ASSERT_EQ(got[i].weights.sizes(), (std::vector<int64_t>{tokens, model->cross_heads(), keys}));
      if (tokens == 0) continue;
      EXPECT_LE((got[i].weights.sum(-1) - 1).abs().max().item<double>(), 1e-5);
      // Row t: of the step that read the token before.
      layer::Context context;
      const auto decoding = model->begin(pad_sources({kSources[i]}, kPad), tokens, context);
      for (int64_t t = 0; t < tokens; ++t) {
        const int64_t read = t == 0 ? kBos : got[i].ids[static_cast<size_t>(t - 1)];
        const at::Tensor want = model->step(*decoding, at::full({1}, read, at::kLong), true).weights[0];
        EXPECT_LE(distance(got[i].weights[t], want), 1e-5) << i << ", " << t;
      }
    }
  }
}

TEST(Translate, MistakesAreNamed) {
  const RandomWeights weights(1);
  const auto model = make_transformer_translator(tiny(9), weights);
  EXPECT_THROW(translate(*model, {{}}, options(1, 5)), std::invalid_argument);
  EXPECT_THROW(translate(*model, kSources, options(0, 5)), std::invalid_argument);
  EXPECT_THROW(translate(*model, kSources, options(1, -1)), std::invalid_argument);
  EXPECT_THROW(translate(*model, {std::vector<int64_t>(41, 3)}, options(1, 5)), std::invalid_argument);
  TranslateOptions both = options(2, 5);
  both.sampling = Sampling{};
  EXPECT_THROW(translate(*model, kSources, both), std::invalid_argument);
  both = options(1, 5);
  both.length_penalty = -1;
  EXPECT_THROW(translate(*model, kSources, both), std::invalid_argument);
}

TEST(BeamSearch, WhatEndsBelowTheBeamIsNoResult) {
  BeamSearch search(1, 0.0, kEos, 3);
  auto next = search.step({{0, kEos, -1.0}, {0, 5, -0.5}});
  ASSERT_EQ(next.size(), 1U);
  EXPECT_EQ(next[0].id, 5);
  next = search.step({{0, kEos, -0.1}, {0, 5, -2.5}});
  EXPECT_TRUE(next.empty());
  EXPECT_TRUE(search.done());
  EXPECT_EQ(search.best().ids, std::vector<int64_t>{5});
  EXPECT_DOUBLE_EQ(search.best().score, -0.6);
}

TEST(BeamSearch, AtTheLimitAFinishedOneIsBetterThanACutOne) {
  BeamSearch search(2, 0.0, kEos, 2);
  search.step({{0, kEos, -3.0}, {0, 5, -0.5}});
  EXPECT_FALSE(search.done());
  search.step({{0, 6, -0.1}, {0, 7, -0.2}});
  EXPECT_TRUE(search.done());
  EXPECT_TRUE(search.best().finished);
  EXPECT_TRUE(search.best().ids.empty());
}

TEST(BeamSearch, LongerTextsPayLessWithAPenalty) {
  EXPECT_DOUBLE_EQ(length_norm(1, 0.6), 1.0);
  EXPECT_DOUBLE_EQ(length_norm(7, 1.0), 2.0);
  EXPECT_DOUBLE_EQ(length_norm(30, 0.0), 1.0);
}

// A folder as a training saves it.
class Folder {
 public:
  explicit Folder(const std::string& name)
      : path_(std::filesystem::path(::testing::TempDir()) / ("regard-translator-" + name)) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  void save(const io::Json& config, const RandomWeights& weights) const {
    io::write_file_atomically(path_ / "config.json", config.dump());
    io::write_file_atomically(path_ / "tokenizer.json", regard::testing::letters_tokenizer());
    std::vector<io::Tensor> tensors;
    for (const std::string& name : weights.names()) {
      const at::Tensor value = weights[name];
      tensors.push_back(
          io::view(name, value.sizes().vec(),
                   std::span(value.const_data_ptr<float>(), static_cast<size_t>(value.numel()))));
    }
    io::write_safetensors(path_ / "model.safetensors", tensors);
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

TEST(LoadTranslator, AFolderGivesTheModelThatWasSaved) {
  const at::NoGradGuard no_grad;
  const RandomWeights one(1), two(2);
  const auto transformer = make_transformer_translator(tiny(9), one);
  const auto rnn = make_rnn_translator(tiny_rnn(9), two);
  const Source source = padded_source(9);
  const at::Tensor target = some_target(9);
  for (const bool recurrent : {false, true}) {
    const Folder folder(recurrent ? "rnn" : "transformer");
    folder.save(recurrent ? to_json(tiny_rnn(9)) : to_json(tiny(9)), recurrent ? two : one);
    EXPECT_TRUE(is_translator(folder.path()));
    const LoadedTranslator loaded = load_translator(folder.path());
    EXPECT_EQ(loaded.type, recurrent ? "rnn_translator" : "transformer_translator");
    EXPECT_EQ(loaded.bos, kBos);
    EXPECT_EQ(loaded.eos, kEos);
    EXPECT_EQ(loaded.pad, kPad);
    layer::Context context;
    Translator& model = recurrent ? *rnn : *transformer;
    // Products of a file's matrices are packed_product()'s: other sums than at::linear's.
    EXPECT_TRUE(at::allclose(loaded.model->hidden(source, target, context),
                             model.hidden(source, target, context), 1e-5, 1e-5));
    EXPECT_EQ(source_ids(*loaded.tokenizer, "a c e", loaded.eos), (std::vector<int64_t>{4, 6, 8, 1}));
  }
}

TEST(LoadTranslator, WhatAConfigMayNotSayIsNamed) {
  const auto message = [](const io::Json& config) -> std::string {
    try {
      const RandomWeights weights(1);
      make_translator(config, "config.json", weights);
    } catch (const io::Error& error) {
      return error.what();
    }
    return "nothing was wrong";
  };
  EXPECT_EQ(message(to_json(tiny(9))), "nothing was wrong");
  EXPECT_EQ(message(to_json(tiny_rnn(9))), "nothing was wrong");
  const auto with = [](io::Json config, const char* field, const io::Json& value) {
    config[field] = value;
    return config;
  };
  EXPECT_NE(
      message(with(to_json(tiny(9)), "model_type", "bert")).find("rnn_translator, transformer_translator"),
      std::string::npos);
  EXPECT_NE(message(with(to_json(tiny(9)), "norm", "rms")).find("known are layer, harvard"),
            std::string::npos);
  EXPECT_NE(message(with(to_json(tiny(9)), "num_attention_heads", 3)).find("hidden_size is 8"),
            std::string::npos);
  EXPECT_NE(message(with(to_json(tiny(9)), "eos_token_id", 9)).find("eos_token_id"), std::string::npos);
  EXPECT_NE(message(with(to_json(tiny_rnn(9)), "attention", "cosine"))
                .find("known are none, additive, dot, general, concat"),
            std::string::npos);
  EXPECT_NE(message(with(to_json(tiny_rnn(9)), "input_feeding", true)).find("input_feeding is true"),
            std::string::npos);
  io::Json dot = with(to_json(tiny_rnn(9)), "attention", "dot");
  EXPECT_NE(message(with(dot, "hidden_size", 10)).find("twice encoder_hidden_size"), std::string::npos);
}

}  // namespace
}  // namespace regard::model::testing

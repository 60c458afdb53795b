// What `look` says of real models; skipped where a model is not installed.
#include <gtest/gtest.h>

#include <cmath>

#include "regard/lens/make_report.h"
#include "regard/lens/record.h"
#include "regard/lens/trace.h"
#include "regard/model/registry.h"

namespace regard::lens {
namespace {

constexpr const char* kSentence = "The animal didn't cross the street because it was too tired";

bool installed(const std::string& name) {
  return model::known_model(name).installed();
}

#define SKIP_WITHOUT(name) \
  if (!installed(name)) GTEST_SKIP() << name << " is not installed: regard models get " << name

Recording read(const model::Loaded& loaded, const std::string& text) {
  RecordOptions options;
  options.keep_values = true;
  options.keep_inputs = true;
  return record(loaded, loaded.tokenizer->encode(text), text, options);
}

// Weight of `row` on `key` in one head.
float weight(const Recording& recording, int64_t layer, int64_t head, const std::string& row,
             const std::string& key) {
  ReportOptions options;
  options.token = row;
  options.best_heads = 1000;
  const Report report = make_report(recording, options);
  const int64_t unit = find_unit(recording, report.units, key);
  for (const FocusHead& seen : report.focus.heads) {
    if (seen.layer == layer && seen.head == head) return seen.weights[static_cast<size_t>(unit)];
  }
  return -1;
}

void expect_traces(const Recording& recording) {
  const int64_t last = static_cast<int64_t>(recording.layers.size()) - 1;
  for (const int64_t layer : {int64_t{0}, last / 2, last}) {
    const Trace out = trace(recording, layer, (layer + 1) % recording.heads(), recording.size() - 2);
    EXPECT_LT(out.largest_difference, 1e-5) << "layer " << layer;
    EXPECT_LT(out.largest_weight_difference, 1e-5) << "layer " << layer;
    EXPECT_FALSE(out.x.empty());
    EXPECT_FALSE(out.v.empty());
  }
}

TEST(MiniLm, ItLooksAtTheAnimal) {
  SKIP_WITHOUT("minilm");
  const model::Loaded loaded = model::load("minilm");
  const Recording recording = read(loaded, kSentence);
  EXPECT_NEAR(weight(recording, 3, 1, "it", "animal"), 0.64, 0.005);
  EXPECT_NEAR(weight(recording, 5, 11, "it", "animal"), 0.65, 0.005);
  // Of all heads, these two give it the largest weights, and the report names them beside the word.
  ReportOptions options;
  options.token = "it";
  options.on = "animal";
  const Report report = make_report(recording, options);
  ASSERT_GE(report.focus.heads.size(), 2U);
  EXPECT_EQ(report.focus.heads[0].layer, 5);
  EXPECT_EQ(report.focus.heads[0].head, 11);
  EXPECT_EQ(report.focus.heads[1].layer, 3);
  EXPECT_EQ(report.focus.heads[1].head, 1);
  const auto& strongest = report.focus.strongest[static_cast<size_t>(report.focus.on_unit)];
  ASSERT_EQ(strongest.size(), 2U);
  EXPECT_EQ(strongest[0].layer, 5);
  EXPECT_EQ(strongest[1].head, 1);
  EXPECT_EQ(report.units[3].text, "didn't");  // three tokens
  expect_traces(recording);
}

TEST(E5, AForcedPieceLooksAtTheNextOne) {
  SKIP_WITHOUT("e5");
  const model::Loaded loaded = model::load("e5");
  const std::string pieces = "我|吃|了|一个|苹果";
  const std::string text = text::Tokenizer::forced_text(pieces);
  RecordOptions record_options;
  record_options.keep_values = record_options.keep_inputs = true;
  const Recording recording = record(loaded, loaded.tokenizer->encode_pieces(pieces), text, record_options);
  EXPECT_NEAR(weight(recording, 2, 6, "一个", "苹果"), 1.000, 0.001);
  EXPECT_NEAR(weight(recording, 1, 7, "一个", "苹果"), 0.997, 0.001);
  EXPECT_NEAR(weight(recording, 11, 11, "一个", "苹果"), 0.624, 0.001);
  const Report report = make_report(recording);
  // The label beside the numbers says why: they look at the next piece, whatever it is.
  for (const HeadReport& head : report.grid) {
    if ((head.layer == 2 && head.head == 6) || (head.layer == 1 && head.head == 7)) {
      EXPECT_EQ(head.label, Label::next);
    }
  }
  for (const Token& token : recording.tokens) EXPECT_FALSE(token.unknown);
  expect_traces(recording);
}

TEST(SmolLm2, ATokenSeesOnlyWhatPrecedesIt) {
  SKIP_WITHOUT("smollm2");
  const model::Loaded loaded = model::load("smollm2");
  const Recording recording = read(loaded, kSentence);
  EXPECT_TRUE(recording.causal);
  const RecordedLayer& layer = recording.layers[10];
  const std::vector<float> row = layer.weights_row(4, 5);
  for (size_t j = 6; j < row.size(); ++j) EXPECT_EQ(row[j], 0.0F);
  expect_traces(recording);
}

TEST(SmolLm2, OnlyWantedLayersAreKeptAndAreTheSame) {
  SKIP_WITHOUT("smollm2");
  const model::Loaded loaded = model::load("smollm2");
  const Recording all = read(loaded, kSentence);
  RecordOptions options;
  options.layers = {2, 5};
  const Recording two = record(loaded, loaded.tokenizer->encode(kSentence), kSentence, options);
  ASSERT_EQ(two.layers.size(), 2U);
  EXPECT_EQ(two.layers[1].layer, 5);
  EXPECT_EQ(two.layers[1].q, all.layers[5].q);
  options.layers = {30};
  EXPECT_THROW(record(loaded, loaded.tokenizer->encode(kSentence), kSentence, options),
               std::invalid_argument);
}

}  // namespace
}  // namespace regard::lens

#include "regard/lens/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "regard/lens/make_report.h"
#include "tests/lens/made.h"

namespace regard::lens {
namespace {

Recording two_layers() {
  std::vector<std::string> words = made::words(12);
  words.front() = "[CLS]";
  words.back() = "[SEP]";
  return made::recording(words,
                         {made::random_layer(3, 3, 12, 8, false, 21),
                          made::random_layer(3, 3, 12, 8, false, 24, Precision::f32, 1)},
                         false);
}

double sum(const std::vector<float>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

TEST(Report, EveryRowOfTheFocusSumsToOne) {
  ReportOptions options;
  options.token = "w4";
  const Report report = make_report(two_layers(), options);
  EXPECT_TRUE(report.focus.chosen_by_user);
  EXPECT_EQ(report.focus.unit, 4);
  EXPECT_NEAR(sum(report.focus.mean_weights), 1, 1e-5);
  EXPECT_NEAR(sum(report.focus.rollout), 1, 1e-5);
  ASSERT_EQ(report.focus.heads.size(), 6U);
  float last = 1;
  for (const FocusHead& head : report.focus.heads) {
    EXPECT_NEAR(sum(head.weights), 1, 1e-5);
    EXPECT_LE(head.top_weight, last);
    last = head.top_weight;
  }
}

TEST(Report, HidingSpecialTokensLeavesRowsThatSumToOneWithoutThem) {
  ReportOptions options;
  options.token = "w4";
  options.hide_special = true;
  const Report report = make_report(two_layers(), options);
  EXPECT_EQ(report.focus.mean_weights.front(), 0.0F);
  EXPECT_EQ(report.focus.mean_weights.back(), 0.0F);
  EXPECT_NEAR(sum(report.focus.mean_weights), 1, 1e-5);
  EXPECT_TRUE(report.focus.mean_mixture.sinks.empty());
}

TEST(Report, HeadsAreRankedOnTheWordThatIsAskedFor) {
  ReportOptions options;
  options.token = "w4";
  options.on = "w7";
  const Report report = make_report(two_layers(), options);
  for (const FocusHead& head : report.focus.heads) {
    EXPECT_EQ(head.top_unit, 7);
    EXPECT_EQ(head.top_weight, head.weights[7]);
  }
}

TEST(Report, WithoutAWordTheRuleIsStated) {
  const Report report = make_report(two_layers());
  EXPECT_FALSE(report.focus.chosen_by_user);
  EXPECT_NE(report.focus.reason.find("times an even share"), std::string::npos);
  EXPECT_FALSE(report.units[static_cast<size_t>(report.focus.unit)].special);
}

TEST(Report, CarriesTheAskedHeadEvenWithoutRoomAndOthersWhileThereIsSome) {
  ReportOptions options;
  options.carry = {{1, 2}};
  options.carry_bytes = 0;
  const Report none = make_report(two_layers(), options);
  ASSERT_EQ(none.carried.size(), 1U);
  EXPECT_EQ(none.carried[0].layer, 1);
  EXPECT_EQ(none.carried[0].head, 2);
  options.carry_bytes = 1 << 20;
  EXPECT_EQ(make_report(two_layers(), options).carried.size(), 6U);
}

TEST(Report, CarriedHeadsGiveBackTheirWeights) {
  const Recording recording = two_layers();
  const Report report = make_report(recording);
  for (const CarriedHead& head : report.carried) {
    const CarriedKeys& keys = report.carried_keys[static_cast<size_t>(head.keys)];
    const std::vector<float> row = recording.at_layer(head.layer).weights_row(head.head, 5);
    for (size_t j = 0; j < 12; ++j) {
      float dot = 0;
      for (size_t c = 0; c < 8; ++c) dot += head.q[5 * 8 + c] * keys.k[j * 8 + c];
      EXPECT_NEAR(std::exp(head.scale * dot - head.lse[5]), row[j], 1e-5);
    }
  }
}

TEST(Report, JsonHoldsTheFieldsThatProgramsRead) {
  ReportOptions options;
  options.token = "w4";
  const nlohmann::json json = to_json(make_report(two_layers(), options));
  for (const char* field : {"model", "architecture", "text", "layers", "heads", "kv_heads", "kept_layers",
                            "causal", "approximate", "weak", "view", "tokens", "units", "grid", "focus"}) {
    EXPECT_TRUE(json.contains(field)) << field;
  }
  EXPECT_EQ(json["tokens"].size(), 12U);
  EXPECT_EQ(json["grid"].size(), 6U);
  EXPECT_TRUE(json["weak"]);
  for (const char* field :
       {"layer", "head", "label", "label_score", "scores", "entropy", "entropy_share", "sink"}) {
    EXPECT_TRUE(json["grid"][0].contains(field)) << field;
  }
  EXPECT_TRUE(json["grid"][0]["scores"]["induction"].is_null());  // this text cannot show it
  EXPECT_EQ(json["focus"]["text"], "w4");
  EXPECT_EQ(json["focus"]["mean_weights"].size(), 12U);
  EXPECT_EQ(json["focus"]["heads"][0]["weights"].size(), 12U);
  const auto& mixture = json["focus"]["mean_mixture"];
  double total = mixture["rest"].get<double>() + mixture["sink_weight"].get<double>();
  for (const auto& term : mixture["terms"]) total += term["weight"].get<double>();
  EXPECT_NEAR(total, 1, 1e-5);
}

}  // namespace
}  // namespace regard::lens

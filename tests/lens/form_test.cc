#include "regard/lens/form.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "made.h"

namespace regard::lens {
namespace {

Recording random_recording(bool causal, int64_t tokens = 24) {
  return made::recording(made::words(tokens), {made::random_layer(2, 1, tokens, 8, causal, 5)}, causal);
}

TEST(Form, WhatIsFullAttentionIsNotOff) {
  for (const bool causal : {false, true}) {
    const FormReport report = compare_form(random_recording(causal), form_choice("block=24"), 0, 1, 3);
    ASSERT_EQ(report.heads.size(), 2U);
    for (const FormHead& head : report.heads) {
      EXPECT_LE(head.weight_error, 1e-5F);
      EXPECT_LE(head.moved, 1e-5F);
      EXPECT_LE(head.output_error, 1e-5F);
      EXPECT_EQ(head.same_top, 1.0F);
    }
    ASSERT_EQ(report.form.size(), 24U);
    for (size_t j = 0; j < 24; ++j) EXPECT_NEAR(report.form[j], report.softmax[j], 1e-6);
  }
}

TEST(Form, EveryFormGivesRowsOfMassOneAndSaysHowFarOffItIs) {
  const Recording recording = random_recording(false);
  for (const char* name : {"block", "nystrom=6", "linformer", "lsh=4", "linear", "additive", "cosine"}) {
    const FormReport report = compare_form(recording, form_choice(name), 0, 0, 7);
    EXPECT_FALSE(report.description.empty());
    for (const FormHead& head : report.heads) {
      EXPECT_GT(head.weight_error, 1e-3F) << name;
      EXPECT_TRUE(std::isfinite(head.weight_error) && std::isfinite(head.output_error)) << name;
    }
    float sum = 0;
    for (const float weight : report.form) sum += weight;
    // Cut-short inverses and random projections do not keep it.
    if (report.name != "nystrom" && report.name != "linformer") {
      EXPECT_NEAR(sum, 1, 1e-4) << name;
    }
    EXPECT_EQ(to_json(report)["heads"].size(), 2U);
  }
}

TEST(Form, CausalFormsKeepTheFutureHidden) {
  const Recording recording = random_recording(true);
  for (const char* name : {"block=4", "lsh", "linear", "additive", "cosine"}) {
    const FormReport report = compare_form(recording, form_choice(name), 0, 0, 9);
    for (size_t j = 10; j < 24; ++j) EXPECT_EQ(report.form[j], 0.0F) << name << j;
  }
  EXPECT_THROW(compare_form(recording, form_choice("nystrom"), 0, 0, 0), std::invalid_argument);
  EXPECT_THROW(compare_form(recording, form_choice("linformer"), 0, 0, 0), std::invalid_argument);
}

TEST(Form, NamesAndNumbersAreChecked) {
  EXPECT_EQ(form_choice("block=32").size, 32);
  EXPECT_EQ(form_choice("nystrom").size, 0);
  for (const char* wrong : {"blocks", "block=", "block=0", "block=x", "linear=3", "lsh=3"})
    EXPECT_THROW(form_choice(wrong), std::invalid_argument) << wrong;
}

}  // namespace
}  // namespace regard::lens

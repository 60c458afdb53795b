// How matrices begin, by name: variances, bounds, and what is divided.
#include "regard/train/parameters.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

namespace regard::train {
namespace {

constexpr int64_t kRows = 300, kColumns = 500;

at::Tensor begun(const char* kind, double divisor = 1, const char* name = "a.q_proj.weight",
                 int64_t rows = kRows, int64_t columns = kColumns, uint64_t seed = 3) {
  const Initialisation how{
      .kind = initialisation_named(kind), .deviation = 0.03, .residual_divisor = divisor};
  return Parameters(how, "", seed).matrix(name, rows, columns).dense().detach();
}

TEST(Initialisations, HaveTheVarianceAndTheBoundsOfTheirNames) {
  const double in = kColumns, out = kRows;
  const struct {
    const char* name;
    double variance;
    double bound;  // 0: normal
  } expected[] = {{"normal", 0.03 * 0.03, 0},
                  {"xavier_uniform", 2 / (in + out), std::sqrt(6 / (in + out))},
                  {"xavier_normal", 2 / (in + out), 0},
                  {"kaiming_uniform", 1 / in, std::sqrt(3 / in)},
                  {"kaiming_normal", 1 / in, 0},
                  {"orthogonal", 1 / in, 0},
                  {"luong", 0.01 / 3, 0.1}};
  for (const auto& want : expected) {
    SCOPED_TRACE(want.name);
    const at::Tensor values = begun(want.name).to(at::kDouble);
    EXPECT_NEAR(deviation({.kind = initialisation_named(want.name), .deviation = 0.03}, kRows, kColumns),
                std::sqrt(want.variance), 1e-12);
    const double spread = std::sqrt(want.variance);
    const auto n = static_cast<double>(values.numel());
    EXPECT_NEAR(values.mean().item<double>(), 0, 5 * spread / std::sqrt(n));
    EXPECT_NEAR(values.var().item<double>() / want.variance, 1, 0.02);
    const double largest = values.abs().max().item<double>();
    if (want.bound > 0) {
      EXPECT_LE(largest, want.bound * (1 + 1e-6));
      EXPECT_GT(largest, 0.999 * want.bound);
    } else {
      EXPECT_GT(largest, 3.5 * spread);
      EXPECT_NEAR((values.abs() < spread).to(at::kDouble).mean().item<double>(), 0.683, 0.01);
    }
    EXPECT_TRUE(at::equal(begun(want.name), begun(want.name)));
    EXPECT_FALSE(at::equal(begun(want.name), begun(want.name, 1, "a.q_proj.weight", kRows, kColumns, 4)));
  }
  EXPECT_THROW(initialisation_named("glorot"), std::invalid_argument);
}

TEST(Initialisations, OrthogonalRowsOrColumnsAreOrthonormal) {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{40, 70}, {70, 40}, {50, 50}}) {
    const at::Tensor values = begun("orthogonal", 1, "a", rows, columns).to(at::kDouble);
    const at::Tensor products =
        rows < columns ? at::matmul(values, values.t()) : at::matmul(values.t(), values);
    EXPECT_LE((products - at::eye(products.size(0), at::kDouble)).abs().max().item<double>(), 1e-5);
  }
}

TEST(Initialisations, BahdanausIsByThePartOfTheModel) {
  const auto spread = [](const char* name) {
    return begun("bahdanau", 1, name, 300, 100).std().item<double>();
  };
  EXPECT_NEAR(spread("attention.query.weight"), 0.001, 3e-5);
  EXPECT_NEAR(spread("attention.key.weight"), 0.001, 3e-5);
  EXPECT_EQ(spread("attention.vector.weight"), 0);
  EXPECT_NEAR(spread("decoder.layers.0.input.weight"), 0.01, 3e-4);
  for (const at::Tensor& gate : begun("bahdanau", 1, "decoder.layers.0.hidden.weight", 300, 100).chunk(3))
    EXPECT_LE((at::matmul(gate, gate.t()) - at::eye(100)).abs().max().item<double>(), 1e-5);
}

// scale_residual of a recipe.
TEST(Initialisations, WhatWritesIntoTheStreamIsDivided) {
  for (const char* kind : {"normal", "xavier_uniform", "kaiming_normal", "orthogonal"}) {
    SCOPED_TRACE(kind);
    for (const char* name : {"layers.0.self_attn.o_proj.weight", "layers.0.mlp.down_proj.weight"})
      EXPECT_TRUE(at::allclose(begun(kind, 4, name) * 4, begun(kind, 1, name), 1e-5, 1e-9));
    EXPECT_TRUE(at::equal(begun(kind, 4), begun(kind, 1)));
  }
}

TEST(Initialisations, VectorsBeginAsTheyAreUsed) {
  const Parameters parameters({.kind = Initialisation::Kind::orthogonal}, "", 1);
  EXPECT_TRUE(parameters.vector("norm.weight", 5).eq(1).all().item<bool>());
  EXPECT_TRUE(parameters.vector("norm.bias", 5).eq(0).all().item<bool>());
}

}  // namespace
}  // namespace regard::train

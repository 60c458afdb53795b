// Norms, activations and rotary positions against the ONNX standard's cases and published scalings.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "regard/autograd/norm.h"
#include "regard/layer/basic.h"
#include "regard/layer/position.h"
#include "regard/layer/rope.h"
#include "tests/layer/support.h"

namespace regard::layer {
namespace {

using autograd::normalize;
using kernel::NormForm;
using testing::distance;
using testing::expect_gradients;
using testing::Golden;

std::vector<std::string> onnx_cases(const std::string& prefix) {
  std::vector<std::string> names;
  for (const auto& file :
       std::filesystem::directory_iterator(std::string(REGARD_GOLDEN_DIR) + "/onnx-layers")) {
    const std::string name = file.path().stem();
    if (file.path().extension() == ".safetensors" && name.rfind(prefix, 0) == 0) names.push_back(name);
  }
  return names;
}

// Axes from `axis` on are one row here.
void expect_norm(const std::string& name, kernel::NormForm kind) {
  const Golden golden("onnx-layers/" + name);
  const at::Tensor x = golden.f32("in.X");
  const nlohmann::json attributes = golden.attributes();
  const int64_t axis = (attributes.value("axis", int64_t{-1}) + x.dim()) % x.dim();
  const double epsilon = attributes.value("epsilon", 1e-5);
  const at::Tensor bias = golden.has("in.B") ? golden.f32("in.B").flatten() : at::Tensor();
  const at::Tensor scale = golden.f32(golden.has("in.W") ? "in.W" : "in.Scale").flatten();
  const at::Tensor rows = x.flatten(axis);
  EXPECT_LE(distance(normalize(kind, rows, scale, bias, epsilon).view(x.sizes()), golden.f32("out.Y")), 1e-6)
      << name;
  const Norm norm(kind == kernel::NormForm::rms ? kernel::NormForm::rms : kernel::NormForm::layer, epsilon,
                  scale, bias);
  EXPECT_LE(distance(norm.forward(rows).view(x.sizes()), golden.f32("out.Y")), 1e-6) << name;
}

TEST(Normalize, OnnxCases) {
  int count = 0;
  for (const std::string& name : onnx_cases("layer_normalization")) {
    expect_norm(name, kernel::NormForm::layer);
    ++count;
  }
  for (const std::string& name : onnx_cases("rms_normalization")) {
    expect_norm(name, kernel::NormForm::rms);
    ++count;
  }
  EXPECT_EQ(count, 38);
}

// "The Annotated Transformer" divides by the deviation of n - 1 plus epsilon.
TEST(Normalize, TheHarvardFlavourDiffersInTheThirdDigit) {
  at::manual_seed(1);
  const at::Tensor x = at::randn({4, 12}, at::kDouble);
  const at::Tensor harvard = normalize(kernel::NormForm::harvard, x, {}, {}, 1e-6);
  EXPECT_LE(distance(harvard, (x - x.mean(-1, true)) / (x.std(-1, true, true) + 1e-6)), 1e-12);
  const double apart = distance(harvard, normalize(kernel::NormForm::layer, x, {}, {}, 1e-6));
  EXPECT_GT(apart, 1e-3);
  EXPECT_LT(apart, 0.1);
  EXPECT_LE(
      distance(
          Norm(kernel::NormForm::harvard, 1e-6, at::ones({12}), at::zeros({12})).forward(x.to(at::kFloat)),
          harvard),
      1e-6);
}

TEST(Normalize, GradientsEqualFiniteDifferences) {
  at::manual_seed(2);
  for (const kernel::NormForm kind :
       {kernel::NormForm::layer, kernel::NormForm::rms, kernel::NormForm::harvard}) {
    at::Tensor x = at::randn({2, 3, 7}, at::kDouble) * 2 + 1;
    at::Tensor weight = at::randn({7}, at::kDouble);
    at::Tensor bias = at::randn({7}, at::kDouble);
    const at::Tensor grad = at::randn({2, 3, 7}, at::kDouble);
    expect_gradients([&] { return (normalize(kind, x, weight, bias, 1e-3) * grad).sum(); },
                     {x, weight, bias});
    expect_gradients([&] { return (normalize(kind, x, {}, {}, 1e-3) * grad).sum(); }, {x});
  }
}

TEST(Normalize, GradientsHaveTheSameBitsForAnyNumberOfThreads) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({1000, 33});
  const at::Tensor grad = at::randn({1000, 33});
  const int before = at::get_num_threads();
  std::vector<at::Tensor> first;
  for (const int threads : {1, 2, 3, 5}) {
    at::set_num_threads(threads);
    const at::Tensor leaf = x.clone().requires_grad_();
    const at::Tensor weight = at::ones({33}).requires_grad_();
    const at::Tensor bias = at::zeros({33}).requires_grad_();
    (normalize(kernel::NormForm::layer, leaf, weight, bias, 1e-5) * grad).sum().backward();
    if (first.empty()) first = {leaf.grad(), weight.grad(), bias.grad()};
    EXPECT_TRUE(at::equal(leaf.grad(), first[0]));
    EXPECT_TRUE(at::equal(weight.grad(), first[1]));
    EXPECT_TRUE(at::equal(bias.grad(), first[2]));
  }
  at::set_num_threads(before);
}

TEST(Normalize, RefusesOtherShapesAndSecondDerivatives) {
  EXPECT_THROW(normalize(kernel::NormForm::layer, at::zeros({2, 3}), at::zeros({4}), {}, 1e-5),
               std::invalid_argument);
  EXPECT_THROW(normalize(kernel::NormForm::rms, at::zeros({2, 3}, at::kLong), {}, {}, 1e-5),
               std::invalid_argument);
  const at::Tensor x = at::randn({2, 3}).requires_grad_();
  EXPECT_THROW(normalize(kernel::NormForm::rms, x, {}, {}, 1e-5).sum().backward({}, true, true),
               std::invalid_argument);
}

TEST(Activation, OnnxCases) {
  for (const std::string name : {"gelu_default_1", "gelu_default_2"}) {
    const Golden golden("onnx-layers/" + name);
    EXPECT_LE(distance(activate(Activation::gelu, golden.f32("in.x")), golden.f32("out.y")), 1e-6);
  }
  for (const std::string name : {"gelu_tanh_1", "gelu_tanh_2"}) {
    const Golden golden("onnx-layers/" + name);
    EXPECT_LE(distance(activate(Activation::gelu_tanh, golden.f32("in.x")), golden.f32("out.y")), 1e-6);
  }
  const Golden swish("onnx-layers/swish");
  EXPECT_LE(distance(activate(Activation::silu, swish.f32("in.x")), swish.f32("out.y")), 1e-6);
  for (const std::string name : {"swiglu", "swiglu_alpha", "swiglu_float16"}) {
    const Golden golden("onnx-layers/" + name);
    const at::Tensor y =
        swiglu(golden.f32("in.a"), golden.f32("in.b"), golden.attributes().value("alpha", 1.0));
    EXPECT_LE(distance(y, golden.f32("out.y")), name == "swiglu_float16" ? 1e-3 : 1e-6) << name;
  }
}

TEST(Activation, SwigluHiddenWidthsAreLlamas) {
  EXPECT_EQ(swiglu_hidden(4096, 1.3, 1024), 14336);
  EXPECT_EQ(swiglu_hidden(8192, 1.3, 4096), 28672);
}

TEST(Rope, OnnxCases) {
  for (const std::string& name : onnx_cases("rotary_embedding")) {
    const Golden golden("onnx-layers/" + name);
    const nlohmann::json attributes = golden.attributes();
    at::Tensor cos = golden.f32("in.cos_cache");
    at::Tensor sin = golden.f32("in.sin_cache");
    if (golden.has("in.position_ids")) {
      const at::Tensor positions = golden.ids("in.position_ids");  // [B, L]
      cos = at::embedding(cos, positions);
      sin = at::embedding(sin, positions);
    }
    at::Tensor x = golden.f32("in.input");
    const at::Tensor want = golden.f32("out.output");
    const bool flat = x.dim() == 3;  // [B, L, H D]
    if (flat) {
      const int64_t heads = attributes["num_heads"];
      x = x.view({x.size(0), x.size(1), heads, x.size(2) / heads});
    } else {
      x = x.transpose(1, 2);
    }
    const bool neighbours = attributes.value("interleaved", 0) != 0;
    at::Tensor y = rotate(x, {cos.unsqueeze(2), sin.unsqueeze(2)},
                          neighbours ? RopePairs::neighbours : RopePairs::halves);
    y = flat ? y.flatten(2) : y.transpose(1, 2);
    EXPECT_LE(distance(y, want), 1e-6) << name;
  }
  EXPECT_THROW(rotate(at::zeros({1, 1, 1, 4}), {at::zeros({1, 1, 3}), at::zeros({1, 1, 3})}),
               std::invalid_argument);
}

// Frequencies and factors of transformers for published configurations.
TEST(Rope, PublishedScalings) {
  const Golden golden("layers/rope_scaling");
  using Kind = RopeScaling::Kind;
  const auto expect = [&](const std::string& name, int64_t size, double base, const RopeScaling& scaling) {
    const Rope rope(size, base, scaling);
    const at::Tensor frequencies = at::tensor(rope.frequencies(), at::kDouble);
    const at::Tensor want = golden.f64(name + ".inv_freq");
    EXPECT_LE(((frequencies - want) / want).abs().max().item<double>(), 1e-5) << name;
    EXPECT_NEAR(rope.attention_factor(), golden.f64(name + ".attention_factor").item<double>(), 1e-6) << name;
    EXPECT_NEAR(rope.table(0, 1).cos[0][0][0].item<double>(), rope.attention_factor(), 1e-6);
  };
  expect("llama31_8b", 128, 500000, {.kind = Kind::llama3, .factor = 8, .original_length = 8192});
  expect("llama32_1b", 64, 500000, {.kind = Kind::llama3, .factor = 32, .original_length = 8192});
  expect("linear_f4", 64, 10000, {.kind = Kind::linear, .factor = 4});
  expect("dynamic_f2_len5000", 64, 10000,
         {.kind = Kind::dynamic, .factor = 2, .original_length = 2048, .length = 5000});
  expect("dynamic_f2_len1000", 64, 10000,
         {.kind = Kind::dynamic, .factor = 2, .original_length = 2048, .length = 1000});
  expect("yarn_f4", 128, 1000000, {.kind = Kind::yarn, .factor = 4, .original_length = 32768});
  expect("yarn_f40_mscale", 64, 10000,
         {.kind = Kind::yarn, .factor = 40, .original_length = 4096, .mscale = 0.707, .mscale_all = 0.707});
}

TEST(Position, SinusoidsTurnByAFixedAngleForEachStep) {
  const at::Tensor table = sinusoid(0, 60, 8);
  EXPECT_TRUE(at::equal(sinusoid(17, 5, 8), table.narrow(0, 17, 5)));
  EXPECT_EQ(table[0][0].item<float>(), 0.0F);
  EXPECT_EQ(table[0][1].item<float>(), 1.0F);
  // The product of two rows depends on their distance alone.
  const auto dot = [&](int64_t i, int64_t j) { return (table[i] * table[j]).sum().item<double>(); };
  EXPECT_NEAR(dot(3, 10), dot(45, 52), 1e-5);
  EXPECT_THROW(sinusoid(0, 4, 7), std::invalid_argument);
}

TEST(Position, AlibiSlopesAreThePapers) {
  EXPECT_LE(distance(alibi_slopes(8), at::pow(2.0, -at::arange(1, 9, at::kDouble))), 1e-7);
  const at::Tensor twelve = alibi_slopes(12);
  EXPECT_NEAR(twelve[8].item<double>(), std::pow(2.0, -0.5), 1e-7);
  EXPECT_NEAR(twelve[11].item<double>(), std::pow(2.0, -3.5), 1e-7);
  EXPECT_THROW(alibi_slopes(0), std::invalid_argument);
}

TEST(Position, LearnedOnesAreRowsOfATable) {
  const LearnedPositions positions(10, 4);
  EXPECT_TRUE(at::equal(positions.forward(3, 2), positions.parameters()[0].narrow(0, 3, 2)));
  EXPECT_THROW(positions.forward(9, 2), std::invalid_argument);
}

}  // namespace
}  // namespace regard::layer

#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "regard/model/translator.h"
#include "regard/model/weight_source.h"

// Translators with random weights, and what they are compared with.
namespace regard::model::testing {

// Random parameters, made when they are asked for. Their numbers depend on the seed and the order alone.
class RandomWeights final : public WeightSource {
 public:
  explicit RandomWeights(uint64_t seed, double deviation = 0.3) : deviation_(deviation) {
    at::manual_seed(seed);
  }

  bool has(std::string_view name) const override { return values_.contains(std::string(name)); }
  layer::Weight matrix(const std::string& name, int64_t rows, int64_t columns,
                       std::vector<int64_t> /*order*/) const override {
    return layer::Weight(get(name, {rows, columns}));
  }
  layer::Weight part(const std::string& name, int64_t all_rows, int64_t begin, int64_t rows,
                     int64_t columns) const override {
    return layer::Weight(get(name, {all_rows, columns}).narrow(0, begin, rows));
  }
  layer::Weight transposed_part(const std::string& name, int64_t all_rows, int64_t begin, int64_t rows,
                                int64_t columns) const override {
    return layer::Weight(get(name, {columns, all_rows}).narrow(1, begin, rows).t());
  }
  at::Tensor vector(const std::string& name, int64_t size) const override { return get(name, {size}); }

  void set(const std::string& name, const at::Tensor& value) { values_[name] = value; }
  const std::vector<std::string>& names() const { return names_; }
  at::Tensor operator[](const std::string& name) const { return values_.at(name); }

  // Leaves of their own in float64, for the plain twins below.
  std::map<std::string, at::Tensor> in_float64() const {
    std::map<std::string, at::Tensor> out;
    for (const auto& [name, value] : values_)
      out[name] = value.detach().to(at::kDouble).clone().requires_grad_();
    return out;
  }

 private:
  at::Tensor get(const std::string& name, at::IntArrayRef shape) const {
    auto found = values_.find(name);
    if (found == values_.end()) {
      const at::NoGradGuard no_grad;
      at::Tensor value = at::randn(shape) * deviation_;
      // Weights of norms are about 1.
      if (shape.size() == 1 && name.ends_with(".weight")) value += 1;
      found = values_.emplace(name, value.requires_grad_()).first;
      names_.push_back(name);
    }
    EXPECT_EQ(found->second.sizes(), shape) << name;
    return found->second;
  }

  double deviation_;
  mutable std::map<std::string, at::Tensor> values_;
  mutable std::vector<std::string> names_;
};

using Plain = std::map<std::string, at::Tensor>;

inline at::Tensor apply(const Plain& p, const std::string& name, const at::Tensor& x, bool bias = true) {
  const at::Tensor y = at::matmul(x, p.at(name + ".weight").t());
  return bias ? y + p.at(name + ".bias") : y;
}

// Largest difference over the largest |want|.
inline double distance(const at::Tensor& got, const at::Tensor& want) {
  EXPECT_EQ(got.sizes(), want.sizes());
  if (got.sizes() != want.sizes()) return INFINITY;
  const at::Tensor w = want.detach().to(at::kDouble);
  return (got.detach().to(at::kDouble) - w).abs().max().item<double>() /
         std::max(w.abs().max().item<double>(), 1e-12);
}

// logits of a model in float32 and their gradients by every parameter, against a plain twin in float64.
inline void expect_equals_plain(
    Translator& model, const RandomWeights& weights, const Source& source, const at::Tensor& target,
    const std::function<at::Tensor(const Plain&, const Source&, const at::Tensor&)>& plain,
    const std::string& what) {
  layer::Context context;
  context.training = true;
  const at::Tensor got = model.logits(model.hidden(source, target, context));
  const Plain twin = weights.in_float64();
  const at::Tensor want = plain(twin, source, target);
  EXPECT_LE(distance(got, want), 1e-5) << what;
  at::manual_seed(77);
  const at::Tensor arriving = at::randn(want.sizes(), at::kDouble);
  for (const std::string& name : weights.names()) weights[name].mutable_grad() = at::Tensor();
  (got * arriving.to(at::kFloat)).sum().backward();
  (want * arriving).sum().backward();
  for (const std::string& name : weights.names()) {
    ASSERT_TRUE(twin.at(name).grad().defined()) << name;
    ASSERT_TRUE(weights[name].grad().defined()) << name;
    // Of a parameter that changes nothing (keys' biases) the gradient is rounding.
    if (twin.at(name).grad().abs().max().item<double>() < 1e-12) continue;
    // Six layers of float32; small gradients of queries and keys are differences of large terms.
    EXPECT_LE(distance(weights[name].grad(), twin.at(name).grad()), 3e-4) << what << ": " << name;
  }
}

// A batch of three sources of lengths 7, 4 and 1, and targets of 6 tokens.
inline Source padded_source(int64_t vocabulary) {
  at::manual_seed(5);
  return {at::randint(0, vocabulary, {3, 7}, at::kLong), at::tensor(std::vector<int64_t>{7, 4, 1})};
}

inline at::Tensor some_target(int64_t vocabulary) {
  at::manual_seed(6);
  return at::randint(0, vocabulary, {3, 6}, at::kLong);
}

// One position after the other equals the whole text at once; so does every row after rows were moved.
inline void expect_steps_equal_the_whole(Translator& model, const std::string& what) {
  const Source source = padded_source(model.vocabulary());
  const at::Tensor target = some_target(model.vocabulary());
  layer::Context context;
  const at::Tensor want = model.logits(model.hidden(source, target, context));
  const auto decoding = model.begin(source, target.size(1), context);
  std::vector<int64_t> rows = {0, 1, 2};  // which source each row is of
  for (int64_t t = 0; t < target.size(1); ++t) {
    const at::Tensor of = at::tensor(rows, at::kLong);
    const Translator::Step step = model.step(*decoding, target.select(1, t).index_select(0, of), true);
    EXPECT_LE(distance(step.logits, want.select(1, t).index_select(0, of)), 1e-5) << what << ", step " << t;
    if (model.cross_heads() > 0) {
      ASSERT_EQ(step.weights.sizes(), (std::vector<int64_t>{of.size(0), model.cross_heads(), 7})) << what;
      EXPECT_LE((step.weights.sum(-1) - 1).abs().max().item<double>(), 1e-5);
      const at::Tensor padding = at::arange(7) >= source.lengths.index_select(0, of).unsqueeze(1);
      EXPECT_EQ((step.weights * padding.unsqueeze(1)).abs().max().item<double>(), 0.0) << what;
    } else {
      EXPECT_FALSE(step.weights.defined());
    }
    // More rows, uneven ones, others in another order, fewer.
    const std::vector<std::vector<int64_t>> moves = {
        {0, 0, 1, 1, 2, 2}, {1, 0, 4, 2, 5}, {4, 3, 2, 1, 0}, {0, 2}, {1, 1, 0}};
    if (t >= static_cast<int64_t>(moves.size())) continue;
    const std::vector<int64_t>& move = moves[static_cast<size_t>(t)];
    decoding->select(at::tensor(move, at::kLong));
    std::vector<int64_t> moved;
    for (const int64_t row : move) moved.push_back(rows[static_cast<size_t>(row)]);
    rows = moved;
  }
  EXPECT_THROW(model.step(*decoding, at::zeros({static_cast<int64_t>(rows.size())}, at::kLong), false),
               std::invalid_argument);
}

inline void expect_padding_changes_nothing(Translator& model, const std::string& what) {
  const Source source = padded_source(model.vocabulary());
  const at::Tensor target = some_target(model.vocabulary());
  layer::Context context;
  const at::Tensor want = model.hidden(source, target, context);
  const Source longer{at::cat({source.ids, at::full({3, 5}, 1, at::kLong)}, 1), source.lengths};
  EXPECT_LE(distance(model.hidden(longer, target, context), want), 1e-6) << what;
  // Nor what stands on it, nor the other texts.
  at::Tensor other = source.ids.clone();
  other[1].narrow(0, 4, 3).fill_(0);
  EXPECT_LE(distance(model.hidden({other, source.lengths}, target, context), want), 1e-6) << what;
  const Source alone{source.ids.narrow(0, 1, 1).narrow(1, 0, 4), {}};
  EXPECT_LE(distance(model.hidden(alone, target.narrow(0, 1, 1), context), want.narrow(0, 1, 1)), 1e-5)
      << what;
}

inline void expect_no_leak(Translator& model, const std::string& what) {
  const Source source = padded_source(model.vocabulary());
  const at::Tensor target = some_target(model.vocabulary());
  layer::Context context;
  const at::Tensor before = model.hidden(source, target, context);
  for (int64_t t = 1; t < target.size(1); ++t) {
    at::Tensor changed = target.clone();
    changed.select(1, t).add_(1).remainder_(model.vocabulary());
    const at::Tensor after = model.hidden(source, changed, context);
    EXPECT_TRUE(after.narrow(1, 0, t).equal(before.narrow(1, 0, t))) << what << ", token " << t;
    EXPECT_FALSE(after.select(1, t).equal(before.select(1, t))) << what << ", token " << t;
  }
}

inline void expect_dropout_by_seed(Translator& model, const std::string& what) {
  const Source source = padded_source(model.vocabulary());
  const at::Tensor target = some_target(model.vocabulary());
  const auto run = [&](uint64_t seed, bool training) {
    layer::Context context;
    context.training = training;
    context.dropout_seed = seed;
    return model.hidden(source, target, context).detach();
  };
  EXPECT_TRUE(run(1, true).equal(run(1, true))) << what;
  EXPECT_FALSE(run(1, true).equal(run(2, true))) << what;
  EXPECT_FALSE(run(1, true).equal(run(1, false))) << what;
  EXPECT_TRUE(run(1, false).equal(run(2, false))) << what;
}

}  // namespace regard::model::testing

#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "regard/autograd/attention.h"
#include "regard/io/json.h"
#include "regard/io/safetensors.h"
#include "regard/layer/recorder.h"
#include "regard/model/model.h"
#include "regard/model/registry.h"
#include "regard/model/transformer.h"

// Reference values of tests/golden and what every model test compares with them.
namespace regard::model::testing {

inline std::filesystem::path golden_path(const std::string& name) {
  return std::filesystem::path(REGARD_GOLDEN_DIR) / name;
}

// A safetensors file of reference values.
class Golden {
 public:
  explicit Golden(const std::string& name) : file_(io::Safetensors::open(golden_path(name))) {}

  // float64 and float32 as they are, int32 as int64.
  at::Tensor at(const std::string& name) const {
    const io::Tensor& tensor = file_.require(name);
    const auto copy = [&]<class T>(T, at::ScalarType type) {
      std::vector<T> values = io::values<T>(tensor);
      return at::from_blob(values.data(), tensor.shape, at::TensorOptions().dtype(type)).clone();
    };
    if (tensor.type == io::Type::f64) return copy(double{}, at::kDouble);
    if (tensor.type == io::Type::i32) return copy(int32_t{}, at::kInt).to(at::kLong);
    return copy(float{}, at::kFloat);
  }
  bool has(const std::string& name) const { return file_.find(name) != nullptr; }
  const io::Safetensors& file() const { return file_; }

 private:
  io::Safetensors file_;
};

inline std::vector<io::Json> json_lines(const std::string& name) {
  std::ifstream file(golden_path(name));
  std::vector<io::Json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(io::parse_json(line, name));
  return lines;
}

inline double max_difference(const at::Tensor& got, const at::Tensor& want) {
  if (got.sizes() != want.sizes()) {
    ADD_FAILURE() << "shape " << got.sizes() << " instead of " << want.sizes();
    return INFINITY;
  }
  if (want.numel() == 0) return 0;
  const double largest = (got.to(at::kDouble) - want.to(at::kDouble)).abs().max().item<double>();
  return std::isnan(largest) ? INFINITY : largest;
}

// Keeps every attention call.
class Calls : public layer::Recorder {
 public:
  bool wants(int64_t) const override { return true; }
  void record(const layer::AttentionCall& call) override {
    specs_.push_back(*call.spec);
    calls_.push_back(call);
  }
  const layer::AttentionCall& operator[](int64_t layer) const {
    return calls_.at(static_cast<size_t>(layer));
  }
  int64_t size() const { return static_cast<int64_t>(calls_.size()); }

  // [heads, rows, keys] of one batch entry, recomputed from q, k and lse.
  at::Tensor weights(int64_t layer, int64_t batch = 0) const {
    const layer::AttentionCall& call = (*this)[layer];
    std::vector<at::Tensor> heads;
    autograd::AttentionExtras extras;
    extras.key_lengths = call.key_lengths;
    for (int64_t head = 0; head < call.q.size(1); ++head) {
      heads.push_back(autograd::weights(specs_[static_cast<size_t>(layer)], call.q, call.k, call.lse, batch,
                                        head, 0, call.q.size(2), 0, call.k.size(2), extras));
    }
    return at::stack(heads);
  }

 private:
  std::vector<layer::AttentionCall> calls_;
  std::vector<attention::Spec> specs_;
};

// ids [L] -> one row.
inline Input one(const at::Tensor& ids) {
  return {ids.unsqueeze(0), {}, {}};
}

inline at::Tensor as_tensor(const std::vector<int64_t>& values) {
  return at::tensor(values, at::kLong);
}

// A model of ours, loaded once per test program; null when it is not installed.
inline Loaded* installed(const std::string& name) {
  static std::map<std::string, std::unique_ptr<Loaded>> models;
  if (!known_model(name).installed()) return nullptr;
  auto& slot = models[name];
  if (!slot) slot = std::make_unique<Loaded>(load(name));
  return slot.get();
}

#define REGARD_NEEDS_MODEL(name)                                                                    \
  if (::regard::model::testing::installed(name) == nullptr) {                                       \
    GTEST_SKIP() << "the model " << name << " is not installed (regard models get " << name << ")"; \
  }

}  // namespace regard::model::testing

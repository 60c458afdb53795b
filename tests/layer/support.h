#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/support/safetensors.h"

// Reference files as tensors, and gradients by differences.
namespace regard::layer::testing {

class Golden {
 public:
  explicit Golden(const std::string& name)
      : file_(std::string(REGARD_GOLDEN_DIR) + "/" + name + ".safetensors") {}

  at::Tensor f64(const std::string& name) const {
    const regard::testing::Array& array = file_[name];
    std::vector<double> values = array.to<double>();
    return at::from_blob(values.data(), array.shape, at::kDouble).clone();
  }
  at::Tensor f32(const std::string& name) const { return f64(name).to(at::kFloat); }
  at::Tensor ids(const std::string& name) const { return f64(name).to(at::kLong); }
  bool has(const std::string& name) const { return file_.has(name); }
  nlohmann::json attributes() const {
    return nlohmann::json::parse(file_.metadata()["attributes"].get<std::string>());
  }

 private:
  regard::testing::SafeTensors file_;
};

// Many tiny calls are faster without waking threads.
class OneThread {
 public:
  OneThread() { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const int before_ = at::get_num_threads();
};

// Largest difference over the largest |want|.
inline double distance(const at::Tensor& got, const at::Tensor& want) {
  EXPECT_EQ(got.sizes(), want.sizes());
  if (got.sizes() != want.sizes() || want.numel() == 0) return got.sizes() == want.sizes() ? 0.0 : INFINITY;
  const at::Tensor w = want.to(at::kDouble);
  return (got.detach().to(at::kDouble) - w).abs().max().item<double>() /
         std::max(w.abs().max().item<double>(), 1e-12);
}

// Puts values into a module's parameter; its gradient is wanted.
inline void set_parameter(torch::nn::Module& module, const std::string& name, const at::Tensor& value) {
  at::Tensor parameter = module.named_parameters()[name];
  const at::NoGradGuard no_grad;
  ASSERT_EQ(parameter.sizes(), value.sizes()) << name;
  parameter.copy_(value);
  parameter.requires_grad_();
}

// The gradients of loss() for float64 leaves against central differences.
inline void expect_gradients(const std::function<at::Tensor()>& loss, std::vector<at::Tensor> leaves,
                             double tolerance = 1e-6) {
  for (at::Tensor& leaf : leaves) {
    ASSERT_EQ(leaf.scalar_type(), at::kDouble);
    ASSERT_TRUE(leaf.is_contiguous());
    leaf.requires_grad_();
    leaf.mutable_grad() = at::Tensor();
  }
  loss().backward();
  for (size_t n = 0; n < leaves.size(); ++n) {
    at::Tensor& leaf = leaves[n];
    ASSERT_TRUE(leaf.grad().defined()) << "leaf " << n;
    const at::NoGradGuard no_grad;
    at::Tensor slopes = at::zeros_like(leaf);
    double* at = leaf.mutable_data_ptr<double>();
    for (int64_t i = 0; i < leaf.numel(); ++i) {
      const double middle = at[i];
      at[i] = middle + 1e-5;
      const double high = loss().item<double>();
      at[i] = middle - 1e-5;
      const double low = loss().item<double>();
      at[i] = middle;
      slopes.mutable_data_ptr<double>()[i] = (high - low) / 2e-5;
    }
    const double scale = std::max(slopes.abs().max().item<double>(), 1e-3);
    EXPECT_LE((leaf.grad() - slopes).abs().max().item<double>() / scale, tolerance) << "leaf " << n;
  }
}

}  // namespace regard::layer::testing

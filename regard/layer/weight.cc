#include "regard/layer/weight.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "regard/autograd/parallel.h"

namespace regard::layer {
namespace {

// Up to so many inputs each expanded row is used at once, while it is in the first-level cache; above, a tile
// is expanded for BLAS. Break-even of one SmolLM2 layer on two cores.
constexpr int64_t kFewRows = 8;
constexpr int64_t kRowsPerTask = 32;
// Floats of a tile: large enough that BLAS is at full speed, small beside the model.
constexpr int64_t kTileElements = int64_t{1} << 21;

int64_t task_count(int64_t rows) {
  return (rows + kRowsPerTask - 1) / kRowsPerTask;
}

// Fixed lanes: the compiler may use vectors of any width without changing the sum.
float dot(const float* a, const float* b, int64_t n) {
  constexpr int64_t kLanes = 16;
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  float sum = 0;
  for (; i < n; ++i) sum += a[i] * b[i];
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return sum + lanes[0];
}

}  // namespace

Weight::Weight(at::Tensor dense, Products products) : dense_(std::move(dense)), products_(products) {
  if (!dense_.defined() || dense_.dim() != 2 || dense_.scalar_type() != at::kFloat) {
    throw std::invalid_argument("Weight: a dense weight must be a float32 matrix");
  }
  rows_ = dense_.size(0);
  columns_ = dense_.size(1);
}

Weight::Weight(at::Tensor dense, std::shared_ptr<const kernel::PackedMatrix> packed)
    : Weight(std::move(dense)) {
  packed_ = std::move(packed);
  if (!packed_ || packed_->rows() != rows_ || packed_->columns() != columns_) {
    throw std::invalid_argument("Weight: the packed matrix is null or has other sizes than the dense one");
  }
}

Weight::Weight(int64_t rows, int64_t columns, ReadRows read)
    : rows_(rows), columns_(columns), read_(std::move(read)) {
  if (rows < 1 || columns < 1 || !read_) {
    throw std::invalid_argument("Weight: rows and columns must be at least 1, and a reader must be given");
  }
}

Weight::Weight(std::shared_ptr<const kernel::QuantizedMatrix> quantized) : quantized_(std::move(quantized)) {
  if (!quantized_) throw std::invalid_argument("Weight: the quantised matrix is null");
  rows_ = quantized_->rows();
  columns_ = quantized_->columns();
}

at::Tensor Weight::linear(const at::Tensor& x, const at::Tensor& bias, kernel::Epilogue epilogue) const {
  if (x.dim() < 1 || x.size(-1) != columns_) {
    throw std::invalid_argument("Weight: the input ends in " + std::to_string(x.dim() < 1 ? 0 : x.size(-1)) +
                                " values; the matrix takes " + std::to_string(columns_));
  }
  const auto wants_gradient = [](const at::Tensor& tensor) {
    return tensor.defined() && tensor.requires_grad();
  };
  const bool trained =
      at::GradMode::is_enabled() && (wants_gradient(x) || wants_gradient(dense_) || wants_gradient(bias));
  const auto finished = [&](const at::Tensor& sums) {
    return epilogue == kernel::Epilogue::gelu ? at::gelu(sums) : sums;
  };
  if (dense_.defined() && products_ == Products::bf16) {
    const at::Tensor out = at::linear(x.to(at::kBFloat16), dense_.to(at::kBFloat16)).to(at::kFloat);
    return finished(bias.defined() ? out + bias : out);
  }
  if (dense_.defined() && (trained || !packed_ || x.scalar_type() != at::kFloat)) {
    return finished(bias.defined() ? at::linear(x, dense_, bias) : at::linear(x, dense_));
  }
  if (trained && wants_gradient(x)) {
    throw std::invalid_argument(
        "Weight: the input requires a gradient; only a float32 weight passes gradients on");
  }
  const at::Tensor flat = x.reshape({-1, columns_}).contiguous();
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = rows_;
  if (packed_) return packed_product(flat, bias, epilogue).view(shape);
  if (quantized_) return quantized_product(flat, bias, epilogue).view(shape);
  at::Tensor out = flat.size(0) <= kFewRows ? few_rows(flat) : many_rows(flat);
  if (bias.defined()) out.add_(bias);
  return finished(out.view(shape));
}

at::Tensor Weight::few_rows(const at::Tensor& x) const {
  const int64_t inputs = x.size(0);
  at::Tensor out = at::empty({inputs, rows_}, x.options());
  const float* in = x.const_data_ptr<float>();
  float* result = out.mutable_data_ptr<float>();
  auto& parallel = autograd::at_parallel();
  std::vector<float> scratch(static_cast<size_t>(parallel.workers() * columns_));
  parallel.run(task_count(rows_), [&](int64_t task, int worker) {
    float* row = scratch.data() + worker * columns_;
    const int64_t end = std::min(rows_, (task + 1) * kRowsPerTask);
    for (int64_t r = task * kRowsPerTask; r < end; ++r) {
      read_(r, r + 1, row);
      for (int64_t i = 0; i < inputs; ++i) result[i * rows_ + r] = dot(in + i * columns_, row, columns_);
    }
  });
  return out;
}

at::Tensor Weight::many_rows(const at::Tensor& x) const {
  at::Tensor out = at::empty({x.size(0), rows_}, x.options());
  const int64_t tile_rows = std::clamp<int64_t>(kTileElements / columns_, 1, rows_);
  at::Tensor tile = at::empty({tile_rows, columns_}, x.options());
  float* scratch = tile.mutable_data_ptr<float>();
  for (int64_t begin = 0; begin < rows_; begin += tile_rows) {
    const int64_t count = std::min(tile_rows, rows_ - begin);
    autograd::at_parallel().run(task_count(count), [&](int64_t task, int) {
      const int64_t first = task * kRowsPerTask;
      const int64_t last = std::min(count, first + kRowsPerTask);
      read_(begin + first, begin + last, scratch + first * columns_);
    });
    at::Tensor slice = out.narrow(1, begin, count);
    at::mm_out(slice, x, tile.narrow(0, 0, count).t());
  }
  return out;
}

at::Tensor Weight::packed_product(const at::Tensor& x, const at::Tensor& bias,
                                  kernel::Epilogue epilogue) const {
  at::Tensor out = at::empty({x.size(0), rows_}, x.options());
  const at::Tensor held = bias.defined() ? bias.contiguous() : bias;
  kernel::packed_product(
      {packed_.get(), x.const_data_ptr<float>(), columns_, x.size(0), out.mutable_data_ptr<float>(), rows_,
       held.defined() ? held.const_data_ptr<float>() : nullptr, epilogue},
      autograd::at_parallel());
  return out;
}

at::Tensor Weight::quantized_product(const at::Tensor& x, const at::Tensor& bias,
                                     kernel::Epilogue epilogue) const {
  at::Tensor out = at::empty({x.size(0), rows_}, x.options());
  auto& parallel = autograd::at_parallel();
  const at::Tensor held = bias.defined() ? bias.contiguous() : bias;
  kernel::QuantizedProduct product;
  product.weights = quantized_.get();
  product.x = x.const_data_ptr<float>();
  product.x_stride = columns_;
  product.rows = x.size(0);
  product.out = out.mutable_data_ptr<float>();
  product.out_stride = rows_;
  if (held.defined()) product.bias = held.const_data_ptr<float>();
  product.epilogue = epilogue;
  const auto bytes = static_cast<int64_t>(kernel::quantized_workspace(product, parallel.workers()));
  at::Tensor workspace = at::empty({bytes}, at::kByte);  // aligned to 64 by the allocator
  kernel::quantized_product(product, static_cast<std::byte*>(workspace.mutable_data_ptr()), parallel);
  return out;
}

at::Tensor Weight::gather(const at::Tensor& ids) const {
  const at::Tensor flat = ids.to(at::kLong).contiguous();
  const int64_t* id = flat.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < flat.numel(); ++i) {
    if (id[i] < 0 || id[i] >= rows_) {
      throw std::invalid_argument("id " + std::to_string(id[i]) + " at place " + std::to_string(i) +
                                  " is not in the table; ids go from 0 to " + std::to_string(rows_ - 1));
    }
  }
  if (dense_.defined()) return at::embedding(dense_, flat);
  std::vector<int64_t> shape = ids.sizes().vec();
  shape.push_back(columns_);
  at::Tensor out = at::empty(shape, at::kFloat);
  float* data = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < flat.numel(); ++i) {
    if (quantized_) {
      quantized_->get_row(id[i], data + i * columns_);
    } else {
      read_(id[i], id[i] + 1, data + i * columns_);
    }
  }
  return out;
}

}  // namespace regard::layer

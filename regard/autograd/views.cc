#include "regard/autograd/views.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <string>

namespace regard::autograd {
namespace {

[[noreturn]] void refuse(const char* name, const at::Tensor& tensor, const std::string& allowed) {
  std::ostringstream text;
  text << "attention: " << name << " is ";
  if (tensor.defined()) {
    text << tensor.scalar_type() << " " << tensor.sizes() << " on " << tensor.device();
  } else {
    text << "undefined";
  }
  text << "; it must be " << allowed;
  throw std::invalid_argument(text.str());
}

void require(const at::Tensor& tensor, const char* name, int64_t dimensions, at::ScalarType type,
             const char* allowed) {
  if (!tensor.defined() || !tensor.device().is_cpu() || tensor.dim() != dimensions ||
      tensor.scalar_type() != type) {
    refuse(name, tensor, allowed);
  }
}

kernel::DType dtype_of(const at::Tensor& tensor, const char* name) {
  if (tensor.defined() && tensor.device().is_cpu() && tensor.dim() == 4) {
    switch (tensor.scalar_type()) {
      case at::kFloat:
        return kernel::DType::f32;
      case at::kBFloat16:
        return kernel::DType::bf16;
      case at::kHalf:
        return kernel::DType::f16;
      default:
        break;
    }
  }
  refuse(name, tensor, "float32, bfloat16 or float16 of [batch, heads, positions, size] on the CPU");
}

kernel::Extents extents(at::IntArrayRef values) {
  return {values[0], values[1], values[2], values[3]};
}

// As four axes, 1 in front; each must be that of `size` or 1.
at::Tensor four_axes(const at::Tensor& tensor, const kernel::Extents& size, const char* name) {
  if (tensor.defined() && tensor.device().is_cpu() && tensor.dim() <= 4) {
    bool fits = true;
    for (int64_t i = 1; i <= tensor.dim(); ++i) {
      fits = fits && (tensor.size(-i) == 1 || tensor.size(-i) == size[4 - i]);
    }
    at::Tensor full = tensor;
    while (full.dim() < 4) full = full.unsqueeze(0);
    if (fits) return full;
  }
  std::ostringstream text;
  text << "a tensor that broadcasts to " << at::IntArrayRef(size.data(), size.size());
  refuse(name, tensor, text.str());
}

void require_per_head(const at::Tensor& tensor, const char* name) {
  if (!tensor.defined() || !tensor.device().is_cpu() || tensor.scalar_type() != at::kFloat ||
      (tensor.dim() != 1 && tensor.dim() != 2)) {
    refuse(name, tensor, "float32 of [heads] or [batch, heads] on the CPU");
  }
}

kernel::Extents per_head_extents(const at::Tensor& tensor) {
  return {tensor.dim() == 1 ? 1 : tensor.size(0), tensor.size(-1), 1, 1};
}

kernel::Extents per_head_strides(const at::Tensor& tensor) {
  return {tensor.dim() == 1 ? 0 : tensor.stride(0), tensor.stride(-1), 0, 0};
}

}  // namespace

kernel::ConstAnyView const_view(const at::Tensor& tensor, const char* name) {
  const kernel::DType dtype = dtype_of(tensor, name);
  return {tensor.const_data_ptr(), dtype, extents(tensor.sizes()), extents(tensor.strides())};
}

kernel::AnyView mutable_view(const at::Tensor& tensor, const char* name) {
  const kernel::DType dtype = dtype_of(tensor, name);
  return {tensor.mutable_data_ptr(), dtype, extents(tensor.sizes()), extents(tensor.strides())};
}

kernel::View<float> lse_view(const at::Tensor& lse) {
  require(lse, "lse", 3, at::kFloat, "float32 of [batch, heads, rows] on the CPU");
  return {lse.mutable_data_ptr<float>(),
          {lse.size(0), lse.size(1), lse.size(2), 1},
          {lse.stride(0), lse.stride(1), lse.stride(2), 1}};
}

kernel::View<const float> const_lse_view(const at::Tensor& lse) {
  require(lse, "lse", 3, at::kFloat, "float32 of [batch, heads, rows] on the CPU");
  return {lse.const_data_ptr<float>(),
          {lse.size(0), lse.size(1), lse.size(2), 1},
          {lse.stride(0), lse.stride(1), lse.stride(2), 1}};
}

kernel::View<const float> broadcast_view(const at::Tensor& tensor, const kernel::Extents& size,
                                         const char* name) {
  const at::Tensor full = four_axes(tensor, size, name);
  if (full.scalar_type() != at::kFloat) refuse(name, tensor, "float32");
  return {full.const_data_ptr<float>(), extents(full.sizes()), extents(full.strides())};
}

kernel::View<float> gradient_view(const at::Tensor& tensor, const kernel::Extents& size, const char* name) {
  const at::Tensor full = four_axes(tensor, size, name);
  return {full.mutable_data_ptr<float>(), extents(full.sizes()), extents(full.strides())};
}

kernel::View<const uint8_t> mask_view(const at::Tensor& tensor, const kernel::Extents& size,
                                      const char* name) {
  const at::Tensor full = four_axes(tensor, size, name);
  if (full.scalar_type() != at::kBool && full.scalar_type() != at::kByte) {
    refuse(name, tensor, "bool or uint8 (true: may attend)");
  }
  return {static_cast<const uint8_t*>(full.const_data_ptr()), extents(full.sizes()), extents(full.strides())};
}

kernel::View<const uint8_t> block_mask_view(const at::Tensor& tensor) {
  const char* const name = "block_mask";
  if (!tensor.defined() || tensor.dim() > 4) refuse(name, tensor, "of at most 4 axes");
  kernel::Extents size{1, 1, 1, 1};
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), size.end() - tensor.dim());
  return mask_view(tensor, size, name);
}

kernel::View<const int32_t> segments_view(const at::Tensor& segments, const char* name) {
  if (!segments.defined() || !segments.device().is_cpu() || segments.scalar_type() != at::kInt ||
      (segments.dim() != 1 && segments.dim() != 2)) {
    refuse(name, segments, "int32 of [positions] or [batch, positions] on the CPU");
  }
  const bool one = segments.dim() == 1;
  return {segments.const_data_ptr<int32_t>(),
          {one ? 1 : segments.size(0), 1, 1, segments.size(-1)},
          {one ? 0 : segments.stride(0), 0, 0, segments.stride(-1)}};
}

std::vector<int64_t> starts_of(const at::Tensor& starts, const char* name) {
  require(starts, name, 1, at::kLong, "int64 of [documents + 1] on the CPU");
  const at::Tensor row = starts.contiguous();
  return {row.const_data_ptr<int64_t>(), row.const_data_ptr<int64_t>() + row.numel()};
}

kernel::View<const float> per_head_view(const at::Tensor& tensor, const char* name) {
  require_per_head(tensor, name);
  return {tensor.const_data_ptr<float>(), per_head_extents(tensor), per_head_strides(tensor)};
}

kernel::View<float> per_head_gradient_view(const at::Tensor& tensor, const char* name) {
  require_per_head(tensor, name);
  return {tensor.mutable_data_ptr<float>(), per_head_extents(tensor), per_head_strides(tensor)};
}

kernel::View<const int64_t> lengths_view(const at::Tensor& lengths) {
  require(lengths, "key_lengths", 1, at::kLong, "int64 of [batch] on the CPU");
  return {lengths.const_data_ptr<int64_t>(), {lengths.size(0), 1, 1, 1}, {lengths.stride(0), 0, 0, 0}};
}

}  // namespace regard::autograd

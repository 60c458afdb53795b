#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "regard/kernel/view.h"

// Tensors as views of the same memory, with any strides. A view does not keep its tensor alive.
namespace regard::autograd {

// [B, H, L, D] float32, bfloat16 or float16 on the CPU. `name` stands in the std::invalid_argument otherwise.
kernel::ConstAnyView const_view(const at::Tensor& tensor, const char* name);
kernel::AnyView mutable_view(const at::Tensor& tensor, const char* name);

// [B, H, L] float32 as [B, H, L, 1]: log-sum-exps.
kernel::View<float> lse_view(const at::Tensor& lse);
kernel::View<const float> const_lse_view(const at::Tensor& lse);

// Four axes of which each is that of `size` or 1: float32 biases and their gradients, uint8 or bool masks.
kernel::View<const float> broadcast_view(const at::Tensor& tensor, const kernel::Extents& size,
                                         const char* name);
kernel::View<float> gradient_view(const at::Tensor& tensor, const kernel::Extents& size, const char* name);
kernel::View<const uint8_t> mask_view(const at::Tensor& tensor, const kernel::Extents& size,
                                      const char* name);

// [H] or [B, H] float32 as [1 or B, H, 1, 1]: sinks, ALiBi slopes, and their gradients.
kernel::View<const float> per_head_view(const at::Tensor& tensor, const char* name);
kernel::View<float> per_head_gradient_view(const at::Tensor& tensor, const char* name);

// At most four axes, 1 in front: uint8 or bool tables of a mask whose sizes the call checks.
kernel::View<const uint8_t> block_mask_view(const at::Tensor& tensor);

// [L] or [B, L] int32 as [1 or B, 1, 1, L].
kernel::View<const int32_t> segments_view(const at::Tensor& segments, const char* name);

// int64 [documents + 1], any stride.
std::vector<int64_t> starts_of(const at::Tensor& starts, const char* name);

// [B] int64 as [B, 1, 1, 1].
kernel::View<const int64_t> lengths_view(const at::Tensor& lengths);

}  // namespace regard::autograd

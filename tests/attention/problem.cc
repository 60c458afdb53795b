#include "tests/attention/problem.h"

#include <algorithm>
#include <limits>

namespace regard::testing {

using attention::Mask;
using kernel::DType;
using kernel::Extents;

Tensor::Tensor(DType dtype, const Extents& size, Layout layout) : dtype_(dtype), size_(size) {
  int64_t elements = size[0] * size[1] * size[2] * size[3];
  switch (layout) {
    case Layout::contiguous:
    case Layout::reversed:
      stride_ = kernel::contiguous_strides(size);
      break;
    case Layout::position_major:
      stride_ = {size[1] * size[2] * size[3], size[3], size[1] * size[3], 1};
      break;
    case Layout::spaced: {
      const int64_t row = 2 * size[3] + 3;
      const int64_t head = (size[2] + 1) * row;
      const int64_t entry = (size[1] + 1) * head;
      stride_ = {entry, head, row, 2};
      elements = size[0] * entry + 1;
      break;
    }
  }
  if (layout == Layout::reversed && elements > 0) {
    origin_ = (size[2] - 1) * stride_[2] + (size[3] - 1) * stride_[3];
    stride_[2] = -stride_[2];
    stride_[3] = -stride_[3];
  }
  if (dtype == DType::f32) {
    floats_.assign(elements, std::numeric_limits<float>::quiet_NaN());
  } else {
    halves_.assign(elements, 0x7fff);  // NaN in both 16-bit types
  }
}

int64_t Tensor::index(int64_t b, int64_t h, int64_t p, int64_t f) const {
  return origin_ + b * stride_[0] + h * stride_[1] + p * stride_[2] + f * stride_[3];
}

void Tensor::set(int64_t b, int64_t h, int64_t p, int64_t f, float value) {
  const int64_t at = index(b, h, p, f);
  if (dtype_ == DType::f32) {
    floats_[at] = value;
  } else if (dtype_ == DType::bf16) {
    halves_[at] = kernel::to_bf16(value).bits;
  } else {
    halves_[at] = kernel::to_f16(value).bits;
  }
}

float Tensor::get(int64_t b, int64_t h, int64_t p, int64_t f) const {
  const int64_t at = index(b, h, p, f);
  if (dtype_ == DType::f32) return floats_[at];
  if (dtype_ == DType::bf16) return kernel::to_float(kernel::bf16{halves_[at]});
  return kernel::to_float(kernel::f16{halves_[at]});
}

namespace {

template <class F>
void for_each(const Extents& size, F&& visit) {
  for (int64_t b = 0; b < size[0]; ++b) {
    for (int64_t h = 0; h < size[1]; ++h) {
      for (int64_t p = 0; p < size[2]; ++p) {
        for (int64_t f = 0; f < size[3]; ++f) visit(b, h, p, f);
      }
    }
  }
}

}  // namespace

void Tensor::fill_normal(std::mt19937_64& random, float amplitude) {
  std::normal_distribution<float> normal(0.0F, amplitude);
  for_each(size_, [&](auto... at) { set(at..., normal(random)); });
}

void Tensor::fill(float value) {
  for_each(size_, [&](auto... at) { set(at..., value); });
}

std::vector<float> Tensor::values() const {
  std::vector<float> all;
  for_each(size_, [&](auto... at) { all.push_back(get(at...)); });
  return all;
}

kernel::AnyView Tensor::view() {
  if (dtype_ == DType::f32) return {floats_.data() + origin_, dtype_, size_, stride_};
  return {halves_.data() + origin_, dtype_, size_, stride_};
}

kernel::ConstAnyView Tensor::view() const {
  return const_cast<Tensor*>(this)->view();
}

std::string Sizes::to_string() const {
  std::string text = "B Hq Hkv Lq Lk Dk Dv =";
  for (const int64_t size : {B, Hq, Hkv, Lq, Lk, Dk, Dv}) {
    text += ' ';
    text += std::to_string(size);
  }
  return text;
}

Problem::Problem(const Sizes& sizes, uint64_t seed, DType dtype, Layout layout, float amplitude)
    : sizes(sizes),
      random(seed),
      q(dtype, {sizes.B, sizes.Hq, sizes.Lq, sizes.Dk}, layout),
      k(dtype, {sizes.B, sizes.Hkv, sizes.Lk, sizes.Dk}, layout),
      v(dtype, {sizes.B, sizes.Hkv, sizes.Lk, sizes.Dv}, layout),
      out(DType::f32, {sizes.B, sizes.Hq, sizes.Lq, sizes.Dv}, layout),
      lse(DType::f32, {sizes.B, sizes.Hq, sizes.Lq, 1}) {
  q.fill_normal(random, amplitude);
  k.fill_normal(random, amplitude);
  v.fill_normal(random);
}

void Problem::add_bias(const Extents& size) {
  bias = Tensor(DType::f32, size);
  bias.fill_normal(random);
}

void Problem::add_slopes() {
  slopes = Tensor(DType::f32, {1, sizes.Hq, 1, 1});
  for (int64_t h = 0; h < sizes.Hq; ++h) slopes.set(0, h, 0, 0, 0.5F / static_cast<float>(1 + h));
}

void Problem::add_sinks() {
  sinks = Tensor(DType::f32, {1, sizes.Hq, 1, 1});
  sinks.fill_normal(random);
}

void Problem::add_dense_mask(const Extents& size, double share_visible) {
  mask_size = size;
  mask.resize(size[0] * size[1] * size[2] * size[3]);
  std::bernoulli_distribution visible(share_visible);
  std::uniform_int_distribution<int> any_true(1, 255);  // whatever is not 0 means true
  for (uint8_t& byte : mask) byte = visible(random) ? static_cast<uint8_t>(any_true(random)) : 0;
  spec.mask = spec.mask & Mask::dense();
}

void Problem::add_key_lengths() {
  std::uniform_int_distribution<int64_t> length(0, sizes.Lk);
  for (int64_t b = 0; b < sizes.B; ++b) lengths.push_back(length(random));
  spec.mask = spec.mask & Mask::key_lengths();
}

void Problem::make_segments(bool sorted) {
  std::uniform_int_distribution<int32_t> number(-1, 3);
  for (auto* side : {&query_segments, &key_segments}) {
    const int64_t length = side == &query_segments ? sizes.Lq : sizes.Lk;
    side->clear();
    for (int64_t b = 0; b < sizes.B; ++b) {
      for (int64_t i = 0; i < length; ++i) side->push_back(number(random));
      if (sorted) std::sort(side->end() - length, side->end());
    }
  }
}

void Problem::make_blocks(int64_t block_rows, int64_t block_keys, double share_visible) {
  blocks_size = {sizes.B, sizes.Hq, (sizes.Lq + block_rows - 1) / block_rows,
                 (sizes.Lk + block_keys - 1) / block_keys};
  for (int64_t& size : blocks_size) {
    if (random() % 5 == 0) size = 1;
  }
  std::bernoulli_distribution visible(share_visible);
  blocks.resize(blocks_size[0] * blocks_size[1] * blocks_size[2] * blocks_size[3]);
  for (uint8_t& byte : blocks) byte = visible(random) ? 7 : 0;
}

attention::Operands Problem::operands() {
  attention::Operands operands;
  operands.q = q.view();
  operands.k = k.view();
  operands.v = v.view();
  operands.out = out.view();
  operands.lse = lse.as<float>();
  if (bias.size() != Extents{}) operands.bias = bias.as<const float>();
  if (slopes.size() != Extents{}) operands.slopes = slopes.as<const float>();
  if (sinks.size() != Extents{}) operands.sinks = sinks.as<const float>();
  if (!mask.empty()) operands.dense_mask = {mask.data(), mask_size};
  if (!lengths.empty()) operands.key_lengths = {lengths.data(), {sizes.B, 1, 1, 1}};
  if (!query_segments.empty()) operands.query_segments = {query_segments.data(), {sizes.B, 1, 1, sizes.Lq}};
  if (!key_segments.empty()) operands.key_segments = {key_segments.data(), {sizes.B, 1, 1, sizes.Lk}};
  if (!blocks.empty()) operands.block_mask = {blocks.data(), blocks_size};
  operands.dropout_seed = dropout_seed;
  operands.dropout_offset = dropout_offset;
  operands.dropout_first_batch = dropout_first_batch;
  return operands;
}

}  // namespace regard::testing

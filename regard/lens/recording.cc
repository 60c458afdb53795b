#include "regard/lens/recording.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "regard/attention/attention.h"
#include "regard/attention/bound_mask.h"

namespace regard::lens {
namespace {

using attention::ConstAnyView;
using kernel::DType;
using kernel::Extents;

DType dtype(Precision precision) {
  return precision == Precision::f32 ? DType::f32 : DType::f16;
}

ConstAnyView view(const std::vector<std::byte>& bytes, Precision precision, int64_t heads, int64_t tokens,
                  int64_t size) {
  const Extents extents{1, heads, tokens, size};
  return {bytes.data(), dtype(precision), extents, kernel::contiguous_strides(extents)};
}

std::vector<float> unpack_row(const std::vector<std::byte>& bytes, Precision precision, int64_t row,
                              int64_t size) {
  std::vector<float> out(static_cast<size_t>(size));
  if (precision == Precision::f32) {
    std::memcpy(out.data(), bytes.data() + row * size * 4, static_cast<size_t>(size) * 4);
  } else {
    for (int64_t i = 0; i < size; ++i) {
      kernel::f16 half;
      std::memcpy(&half, bytes.data() + (row * size + i) * 2, 2);
      out[static_cast<size_t>(i)] = kernel::to_float(half);
    }
  }
  return out;
}

// One head of a view.
ConstAnyView head_of(ConstAnyView all, int64_t head) {
  all.data = static_cast<const std::byte*>(all.data) + head * all.stride[1] * kernel::bytes(all.dtype);
  all.size[1] = 1;
  return all;
}

// attention's calls take a mutable view of the lse because they may also write one; weights() reads it only.
attention::View<float> lse_of_head(const RecordedLayer& layer, int64_t head) {
  return {const_cast<float*>(layer.lse.data()) + head * layer.tokens, Extents{1, 1, layer.tokens, 1}};
}

void check_tile(const RecordedLayer& layer, int64_t head, int64_t row, int64_t rows, int64_t key,
                int64_t keys) {
  const auto fail = [&](const std::string& what, int64_t value, int64_t bound) {
    throw std::invalid_argument(what + " " + std::to_string(value) + " is outside 0 to " +
                                std::to_string(bound));
  };
  if (head < 0 || head >= layer.heads) fail("head", head, layer.heads - 1);
  if (row < 0 || rows < 0 || row + rows > layer.tokens)
    fail("row", row + std::max<int64_t>(rows, 1) - 1, layer.tokens - 1);
  if (key < 0 || keys < 0 || key + keys > layer.tokens)
    fail("key", key + std::max<int64_t>(keys, 1) - 1, layer.tokens - 1);
}

}  // namespace

std::vector<std::byte> RecordedLayer::pack(std::span<const float> values, Precision precision) {
  if (precision == Precision::f32) {
    const auto bytes = std::as_bytes(values);
    return {bytes.begin(), bytes.end()};
  }
  std::vector<std::byte> out(values.size() * 2);
  for (size_t i = 0; i < values.size(); ++i) {
    const kernel::f16 half = kernel::to_f16(values[i]);
    std::memcpy(out.data() + i * 2, &half, 2);
  }
  return out;
}

attention::Operands RecordedLayer::operands() const {
  attention::Operands operands;
  operands.q = view(q, precision, heads, tokens, key_size);
  operands.k = view(k, precision, kv_heads, tokens, key_size);
  operands.v = value_size > 0 ? view(v, precision, kv_heads, tokens, value_size) : operands.k;
  if (dense_mask) {
    const int64_t square = tokens * tokens;
    const int64_t mask_heads = static_cast<int64_t>(dense_mask->size()) / std::max<int64_t>(square, 1);
    operands.dense_mask = {dense_mask->data(), Extents{1, heads, tokens, tokens},
                           Extents{0, mask_heads > 1 ? square : 0, tokens, 1}};
  }
  return operands;
}

attention::Operands RecordedLayer::operands(int64_t head) const {
  attention::Operands one = operands();
  const int64_t kv_head = head / (heads / kv_heads);
  one.q = head_of(one.q, head);
  one.k = head_of(one.k, kv_head);
  one.v = head_of(one.v, kv_head);
  if (one.dense_mask) {
    one.dense_mask.data += head * one.dense_mask.stride[1];
    one.dense_mask.size[1] = 1;
  }
  return one;
}

float RecordedLayer::scale() const {
  return spec.scale.value_or(1.0F / std::sqrt(static_cast<float>(std::max<int64_t>(key_size, 1))));
}

int64_t RecordedLayer::window() const {
  const auto& terms = spec.mask.terms();
  if (terms.size() != 1) return 0;  // of several alternatives none is the window of all
  int64_t window = 0;
  for (const attention::Mask::Part& part : terms.front()) {
    const auto* of = std::get_if<attention::part::Window>(&part);
    if (of == nullptr || of->left < 0) continue;
    window = window == 0 ? of->left + 1 : std::min(window, of->left + 1);
  }
  return window;
}

std::vector<float> RecordedLayer::query(int64_t head, int64_t position) const {
  return unpack_row(q, precision, head * tokens + position, key_size);
}

std::vector<float> RecordedLayer::key(int64_t head, int64_t position) const {
  return unpack_row(k, precision, head / (heads / kv_heads) * tokens + position, key_size);
}

std::vector<float> RecordedLayer::value(int64_t head, int64_t position) const {
  return unpack_row(v, precision, head / (heads / kv_heads) * tokens + position, value_size);
}

std::vector<float> RecordedLayer::weights(int64_t head, int64_t row, int64_t rows, int64_t key,
                                          int64_t keys) const {
  check_tile(*this, head, row, rows, key, keys);
  return attention::weights(spec, operands(head), lse_of_head(*this, head), 0, 0, row, rows, key, keys);
}

std::vector<float> RecordedLayer::logits(int64_t head, int64_t row, int64_t rows, int64_t key,
                                         int64_t keys) const {
  check_tile(*this, head, row, rows, key, keys);
  return attention::logits(spec, operands(head), 0, 0, row, rows, key, keys);
}

RecordedLayer::Visible RecordedLayer::visible(int64_t head, int64_t row) const {
  attention::MaskData data;
  data.dense = operands(head).dense_mask;
  const attention::BoundMask mask(spec.mask, tokens, tokens, data);
  Visible visible;
  for (kernel::Span span = mask.next_span(0, 0, row, 1, 0); span.begin < span.end;
       span = mask.next_span(0, 0, row, 1, span.end)) {
    if (visible.count == 0) visible.begin = span.begin;
    visible.end = span.end;
    if (span.full) {
      visible.count += span.end - span.begin;
      continue;
    }
    for (int64_t key = span.begin; key < span.end; key += 64) {
      uint64_t word = 0;
      mask.bits(0, 0, row, 1, key, std::min<int64_t>(64, span.end - key), &word);
      visible.count += std::popcount(word);
    }
  }
  return visible;
}

const RecordedLayer& Recording::at_layer(int64_t layer) const {
  for (const RecordedLayer& kept : layers) {
    if (kept.layer == layer) return kept;
  }
  std::string known;
  for (const RecordedLayer& kept : layers) known += (known.empty() ? "" : ", ") + std::to_string(kept.layer);
  throw std::invalid_argument("layer " + std::to_string(layer) +
                              " was not kept; layers counted from 0: " + (known.empty() ? "none" : known));
}

void check(const Recording& recording) {
  const auto require = [](bool fits, const RecordedLayer& layer, const char* what) {
    if (!fits) throw std::invalid_argument("layer " + std::to_string(layer.layer) + ": " + what);
  };
  for (const RecordedLayer& layer : recording.layers) {
    const auto holds = [&](const std::vector<std::byte>& bytes, int64_t heads, int64_t size) {
      return static_cast<int64_t>(bytes.size()) ==
             heads * layer.tokens * size * (layer.precision == Precision::f32 ? 4 : 2);
    };
    require(layer.tokens == recording.size(), layer, "its rows are not one a token");
    require(layer.kv_heads > 0 && layer.heads % layer.kv_heads == 0, layer,
            "the query heads are no multiple of the key heads");
    require(holds(layer.q, layer.heads, layer.key_size), layer, "q does not fit its shape");
    require(holds(layer.k, layer.kv_heads, layer.key_size), layer, "k does not fit its shape");
    require(holds(layer.v, layer.kv_heads, layer.value_size), layer, "v does not fit its shape");
    require(static_cast<int64_t>(layer.lse.size()) == layer.heads * layer.tokens, layer,
            "lse does not fit its shape");
  }
}

void compute_lse(RecordedLayer& layer) {
  layer.lse.resize(static_cast<size_t>(layer.heads * layer.tokens));
  std::vector<float> unused(static_cast<size_t>(layer.heads * layer.tokens));
  attention::Operands operands = layer.operands();
  // The values do not matter: one feature of k stands in for them, so that the second product costs little.
  operands.v = operands.k;
  operands.v.size[3] = 1;
  operands.out = attention::View<float>(unused.data(), {1, layer.heads, layer.tokens, 1});
  operands.lse = attention::View<float>(layer.lse.data(), {1, layer.heads, layer.tokens, 1});
  attention::attention(layer.spec, operands);
}

}  // namespace regard::lens

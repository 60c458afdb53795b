#include "regard/kernel/kv_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace regard::kernel {
namespace {

template <class T>
void widen(const View<const T>& view, int64_t batch, int64_t head, int64_t position, float* to) {
  const T* from = view.at(batch, head, position);
  for (int64_t f = 0; f < view.size[3]; ++f) to[f] = to_float(from[f * view.stride[3]]);
}

float quantise(const float* from, int64_t n, int8_t* to) {
  float largest = 0.0F;
  bool finite = true;
  for (int64_t i = 0; i < n; ++i) {
    finite = finite && std::isfinite(from[i]);
    largest = std::max(largest, std::abs(from[i]));
  }
  const float scale = largest / 127.0F;
  if (!finite || scale == 0.0F) {
    std::memset(to, 0, static_cast<size_t>(n));
    return finite ? 0.0F : std::numeric_limits<float>::quiet_NaN();
  }
  // Clamped: the quotient of subnormal numbers may round to beyond 127.
  for (int64_t i = 0; i < n; ++i)
    to[i] = static_cast<int8_t>(std::clamp(std::nearbyint(from[i] / scale), -127.0F, 127.0F));
  return scale;
}

template <class T>
void convert(const T* from, float scale, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = to_float(from[i]) * scale;
}

}  // namespace

void widen_row(const ConstAnyView& view, int64_t batch, int64_t head, int64_t position, float* to) {
  with_type(view.dtype,
            [&](auto element) { widen(view.as<const decltype(element)>(), batch, head, position, to); });
}

float store_row(CacheType type, const float* from, int64_t n, void* to) {
  switch (type) {
    case CacheType::f32:
      std::copy_n(from, n, static_cast<float*>(to));
      break;
    case CacheType::bf16:
      std::transform(from, from + n, static_cast<bf16*>(to), to_bf16);
      break;
    case CacheType::f16:
      std::transform(from, from + n, static_cast<f16*>(to), to_f16);
      break;
    case CacheType::i8:
      return quantise(from, n, static_cast<int8_t*>(to));
  }
  return 1.0F;
}

void load_row(CacheType type, const void* from, float scale, int64_t n, float* to) {
  switch (type) {
    case CacheType::f32:
      return convert(static_cast<const float*>(from), 1.0F, n, to);
    case CacheType::bf16:
      return convert(static_cast<const bf16*>(from), 1.0F, n, to);
    case CacheType::f16:
      return convert(static_cast<const f16*>(from), 1.0F, n, to);
    case CacheType::i8:
      return convert(static_cast<const int8_t*>(from), scale, n, to);
  }
}

}  // namespace regard::kernel

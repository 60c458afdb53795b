#include "regard/kernel/quantized.h"

#include <algorithm>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "regard/kernel/quantized.cc"
#include "regard/kernel/hwy_config.h"

#include <hwy/foreach_target.h>

#include "regard/kernel/epilogue-inl.h"
#include "regard/kernel/quantized-inl.h"
#include "regard/kernel/quantized_layout.h"
#include "regard/kernel/quantized_rows.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

// Below, a block counts as zeros: 127 / largest would overflow.
constexpr float kTiny = 1e-30F;

// One block of up to 32 inputs.
HWY_INLINE void round_block(const float* from, int64_t count, const QuantizedFormat& format,
                            const RoundedRows& to, int64_t row, int64_t block) {
  const D d;
  HWY_ALIGN float x[kBlock];
  HWY_ALIGN int32_t q[kBlock];
  if (count < kBlock) {
    std::memcpy(x, from, static_cast<size_t>(count) * sizeof(float));
    std::memset(x + count, 0, static_cast<size_t>(kBlock - count) * sizeof(float));
    from = x;
  }
  // The largest magnitude's bits: as integers NaN and infinity are the largest.
  const DI di;
  auto bits = hn::Zero(di);
  for (int64_t i = 0; i < kBlock; i += kLanes)
    bits = hn::Max(bits, hn::BitCast(di, hn::Abs(hn::LoadU(d, from + i))));
  const float largest = hn::GetLane(hn::BitCast(d, hn::MaxOfLanes(di, bits)));
  const bool finite = largest <= std::numeric_limits<float>::max();
  const float inverse = finite && largest > kTiny ? 127.0F / largest : 0.0F;
  float* numbers = to.numbers_of(row, block);
  numbers[0] = !finite ? std::numeric_limits<float>::quiet_NaN() : inverse > 0 ? largest / 127.0F : 0.0F;
  for (int64_t i = 0; i < kBlock; i += kLanes) {
    const auto scaled = hn::Mul(hn::LoadU(d, from + i), hn::Set(d, inverse));
    hn::Store(finite ? hn::NearestInt(scaled) : hn::Zero(di), di, q + i);
  }
  int8_t* values = to.values + row * to.value_stride + block * to.block_bytes();
  if (to.wide) {
    int16_t wide[kBlock];
    for (int64_t i = 0; i < kBlock; i += 4)
      for (int64_t j = 0; j < 4; ++j) wide[i + j] = static_cast<int16_t>(q[i + (j * 2 - j / 2 * 3)]);
    std::memcpy(values, wide, sizeof wide);
  } else {
    for (int64_t i = 0; i < kBlock; ++i) values[i] = static_cast<int8_t>(q[i]);
  }
  for (int64_t g = 0; g < kBlock / format.group; ++g) {
    int32_t sum = 0;
    for (int64_t i = 0; i < format.group; ++i) sum += q[g * format.group + i];
    numbers[1 + g] = numbers[0] * static_cast<float>(format.has_minimum ? sum : -format.offset() * sum);
  }
}

void round_rows(const QuantizedProduct& p, int64_t begin, int64_t end, const RoundedRows& to) {
  const QuantizedLayout& layout = p.weights->layout();
  for (int64_t row = begin; row < end; ++row)
    for (int64_t block = 0; block < layout.blocks(); ++block)
      round_block(p.x + row * p.x_stride + block * kBlock, HWY_MIN(kBlock, layout.columns - block * kBlock),
                  layout.format, to, row, block);
}

// Sums of a panel to their place in out, finished.
HWY_INLINE void finish(const QuantizedProduct& p, int64_t panel, int64_t row, int64_t rows,
                       const float* HWY_RESTRICT sums) {
  const D d;
  const int64_t first = panel * kPanelRows;
  const int64_t columns = HWY_MIN(kPanelRows, p.weights->rows() - first);
  const float* row_scales = p.weights->row_scales() + first;
  for (int64_t r = 0; r < rows; ++r, sums += kPanelRows) {
    float* out = p.out + (row + r) * p.out_stride + first;
    for (int64_t i = 0; i < columns; i += kLanes) {
      const int64_t count = HWY_MIN(kLanes, columns - i);
      Vec v = hn::Mul(hn::LoadU(d, sums + i), hn::LoadU(d, row_scales + i));
      if (p.bias != nullptr) v = hn::Add(v, load_some(p.bias + first + i, count));
      store_some(finished(d, p.epilogue, v), count, out + i);
    }
  }
}

template <class F, bool kDot>
void one_row(const QuantizedProduct& p, const QuantizedTiling& tiling, const RoundedRows& x,
             Parallel& parallel) {
  const QuantizedLayout& layout = p.weights->layout();
  parallel.run(tiling.panel_tasks(), [&](int64_t task, int) HWY_ATTR {
    const int64_t end = HWY_MIN(layout.panels(), (task + 1) * tiling.panels);
    for (int64_t panel = task * tiling.panels; panel < end; ++panel) {
      HWY_ALIGN float sums[kPanelRows] = {};
      multiply_rows<F, kDot, 1>(StoredPanel<F>{p.weights->panel(panel)}, x, 0, 0, layout.blocks(), sums);
      finish(p, panel, 0, 1, sums);
    }
  });
}

template <class F, bool kDot>
void many_rows(const QuantizedProduct& p, const QuantizedTiling& tiling, const RoundedRows& x,
               std::byte* workspace, Parallel& parallel) {
  const QuantizedLayout& layout = p.weights->layout();
  parallel.run(tiling.row_tasks() * tiling.panel_tasks(), [&](int64_t task, int worker) HWY_ATTR {
    std::byte* scratch = workspace + tiling.shared_bytes() + worker * tiling.worker_bytes();
    auto* sums = reinterpret_cast<float*>(scratch);
    auto* bytes = reinterpret_cast<uint8_t*>(sums + QuantizedTiling::kRows * kPanelRows);
    auto* floats = reinterpret_cast<float*>(bytes + layout.blocks() * kQuads * kQuadBytes);
    const int64_t first_row = task / tiling.panel_tasks() * QuantizedTiling::kRows;
    const int64_t rows = HWY_MIN(QuantizedTiling::kRows, p.rows - first_row);
    const int64_t first_panel = task % tiling.panel_tasks() * tiling.panels;
    const int64_t end_panel = HWY_MIN(layout.panels(), first_panel + tiling.panels);
    for (int64_t panel = first_panel; panel < end_panel; ++panel) {
      std::fill_n(sums, rows * kPanelRows, 0.0F);
      for (int64_t begin = 0; begin < layout.blocks(); begin += QuantizedTiling::kBlocks) {
        const int64_t end = HWY_MIN(layout.blocks(), begin + QuantizedTiling::kBlocks);
        const ExpandedPanel<F> expanded = expand<F>(p.weights->panel(panel), begin, end, bytes, floats);
        int64_t row = 0;
        for (; row + kTileRows<F> <= rows; row += kTileRows<F>)
          multiply_rows<F, kDot, kTileRows<F>>(expanded, x, first_row + row, begin, end,
                                               sums + row * kPanelRows);
        for (; row < rows; ++row)
          multiply_rows<F, kDot, 1>(expanded, x, first_row + row, begin, end, sums + row * kPanelRows);
      }
      finish(p, panel, first_row, rows, sums);
    }
  });
}

template <class F, bool kDot>
void run_product(const QuantizedProduct& p, const QuantizedTiling& tiling, std::byte* workspace,
                 Parallel& parallel) {
  RoundedRows x = tiling.rounded_rows(workspace);
  // Only x86 lacks an exact product of unsigned and signed bytes.
  x.wide = HWY_ARCH_X86 != 0 && kVectorsOfBytes && F::kBits == 8 && !kDot;
  if (x.wide) x.value_stride *= 2;
  if (p.rows <= QuantizedTiling::kRowsTogether) {
    round_rows(p, 0, p.rows, x);
  } else {
    constexpr int64_t kChunk = 16;
    parallel.run((p.rows + kChunk - 1) / kChunk, [&](int64_t task, int) HWY_ATTR {
      round_rows(p, task * kChunk, HWY_MIN(p.rows, (task + 1) * kChunk), x);
    });
  }
  if (p.rows == 1)
    one_row<F, kDot>(p, tiling, x, parallel);
  else
    many_rows<F, kDot>(p, tiling, x, workspace, parallel);
}

void Product(const QuantizedProduct& p, const QuantizedTiling& tiling, bool dot, std::byte* workspace,
             Parallel& parallel) {
  with_format(p.weights->layout().format, [&](auto format) HWY_ATTR {
    using F = decltype(format);
    if constexpr (kVectorsOfBytes) {
      if (dot) return run_product<F, true>(p, tiling, workspace, parallel);
    }
    run_product<F, false>(p, tiling, workspace, parallel);
  });
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "regard/kernel/dispatch.h"
#include "regard/kernel/dot_products.h"

namespace regard::kernel {

HWY_EXPORT(Product);

size_t quantized_workspace(const QuantizedProduct& product, int workers) {
  const QuantizedTiling tiling(product);
  return static_cast<size_t>(tiling.shared_bytes() + workers * tiling.worker_bytes());
}

void quantized_product(const QuantizedProduct& product, std::byte* workspace, Parallel& parallel) {
  if (product.rows < 1) return;
  REGARD_DISPATCH(Product)(product, QuantizedTiling(product), has_dot_products(), workspace, parallel);
}

void quantized_product(const QuantizedProduct& product, bool dot, std::byte* workspace, Parallel& parallel) {
  REGARD_DISPATCH(Product)(product, QuantizedTiling(product), dot, workspace, parallel);
}

}  // namespace regard::kernel

#endif  // HWY_ONCE

#include "regard/kernel/packed_product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "regard/kernel/packed_product.cc"
#include "regard/kernel/hwy_config.h"

#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>

#include "regard/kernel/epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

constexpr int64_t kPanelRows = PackedMatrix::kPanelRows;
constexpr int64_t kPanels = kCols / kPanelRows;  // that a register tile spans
static_assert(kCols % kPanelRows == 0);

// Columns of a task's pass: a panel of them stays in the first cache while the task's rows pass by. Products
// are summed in shorter runs, whose sums are added: one long sum loses twice the digits.
constexpr int64_t kDepth = 384;
constexpr int64_t kRun = 128;
constexpr int64_t kLine = 16;  // floats of a cache line
// Of a task. Rows: their inputs of one depth stay in the second cache.
constexpr int64_t kTaskRows = 120;
constexpr int64_t kTaskPanels = 12;

// Where a tile's sums go: out at the tile's first row and column, of which `columns` are there; bias
// likewise, or null.
struct TileOut {
  float* out;
  int64_t stride;
  int64_t columns;
  const float* bias;
  bool first, last;  // of the parts that make a sum
  Epilogue epilogue;
};

// kTileRows rows of x times kPanels panels over `depth` columns. next_panel: floats to the tile's second
// panel.
template <int64_t kTileRows>
HWY_INLINE void multiply_tile(const float* HWY_RESTRICT x, int64_t x_stride, const float* HWY_RESTRICT panel,
                              int64_t next_panel, int64_t depth, const TileOut& to) {
  const D d;
  HWY_ALIGN float earlier[kTileRows * kCols];  // sums of the runs before
  Vec sum[kTileRows][kVecs];
#pragma GCC unroll 16
  for (int64_t r = 0; r < kTileRows; ++r) hwy::Prefetch(to.out + r * to.stride);
  int64_t run = 0;
  do {
#pragma GCC unroll 16
    for (int64_t r = 0; r < kTileRows; ++r)
#pragma GCC unroll 16
      for (int64_t n = 0; n < kVecs; ++n) sum[r][n] = hn::Zero(d);
    const int64_t run_end = HWY_MIN(depth, run + kRun);
    for (int64_t begin = run; begin < run_end; begin += kLine) {
      // The inputs of the next tile come from the second cache: they are asked for while this one is
      // multiplied.
#pragma GCC unroll 16
      for (int64_t r = 0; r < kTileRows; ++r) hwy::Prefetch(x + (kTileRows + r) * x_stride + begin);
      const int64_t end = HWY_MIN(run_end, begin + kLine);
#pragma GCC unroll 4
      for (int64_t k = begin; k < end; ++k) {
        Vec weights[kVecs];
#pragma GCC unroll 16
        for (int64_t n = 0; n < kVecs; ++n)
          weights[n] = hn::Load(
              d, panel + n * kLanes / kPanelRows * next_panel + k * kPanelRows + n * kLanes % kPanelRows);
#pragma GCC unroll 16
        for (int64_t r = 0; r < kTileRows; ++r) {
          const Vec factor = hn::Set(d, x[r * x_stride + k]);
#pragma GCC unroll 16
          for (int64_t n = 0; n < kVecs; ++n) sum[r][n] = hn::MulAdd(factor, weights[n], sum[r][n]);
        }
      }
    }
#pragma GCC unroll 16
    for (int64_t r = 0; r < kTileRows; ++r)
#pragma GCC unroll 16
      for (int64_t n = 0; n < kVecs; ++n) {
        float* at = earlier + r * kCols + n * kLanes;
        if (run > 0) sum[r][n] = hn::Add(hn::Load(d, at), sum[r][n]);
        if (run_end < depth) hn::Store(sum[r][n], d, at);
      }
    run = run_end;
  } while (run < depth);
#pragma GCC unroll 16
  for (int64_t r = 0; r < kTileRows; ++r)
#pragma GCC unroll 16
    for (int64_t n = 0; n < kVecs; ++n) {
      const int64_t count = HWY_MIN(kLanes, to.columns - n * kLanes);
      if (count <= 0) continue;
      float* out = to.out + r * to.stride + n * kLanes;
      Vec v = sum[r][n];
      if (!to.first) v = hn::Add(load_some(out, count), v);
      if (to.last) {
        if (to.bias != nullptr) v = hn::Add(v, load_some(to.bias + n * kLanes, count));
        v = finished(d, to.epilogue, v);
      }
      store_some(v, count, out);
    }
}

// All rows of a task, in tiles of kTileRows, the rest in smaller ones.
template <int64_t kTileRows>
HWY_INLINE void multiply_rows(const PackedProduct& p, int64_t row, int64_t end_row, int64_t begin,
                              int64_t depth, const float* panel, int64_t next_panel, int64_t column,
                              TileOut& to) {
  for (; row + kTileRows <= end_row; row += kTileRows) {
    to.out = p.out + row * p.out_stride + column;
    multiply_tile<kTileRows>(p.x + row * p.x_stride + begin, p.x_stride, panel, next_panel, depth, to);
  }
  if constexpr (kTileRows > 1) {
    constexpr int64_t kNext = kTileRows == 12 ? 6 : kTileRows == 6 ? 4 : kTileRows / 2;
    multiply_rows<kNext>(p, row, end_row, begin, depth, panel, next_panel, column, to);
  }
}

void Product(const PackedProduct& p, Parallel& parallel) {
  const PackedMatrix& w = *p.weights;
  const int64_t columns = w.columns();
  const int64_t parts = (columns + kDepth - 1) / kDepth;
  const int64_t panel_tasks = (w.panels() + kTaskPanels - 1) / kTaskPanels;
  const int64_t row_tasks = (p.rows + kTaskRows - 1) / kTaskRows;
  parallel.run(row_tasks * panel_tasks, [&](int64_t task, int) HWY_ATTR {
    const int64_t first_row = task / panel_tasks * kTaskRows;
    const int64_t end_row = HWY_MIN(p.rows, first_row + kTaskRows);
    const int64_t first_panel = task % panel_tasks * kTaskPanels;
    const int64_t end_panel = HWY_MIN(w.panels(), first_panel + kTaskPanels);
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t begin = columns * part / parts;
      const int64_t depth = columns * (part + 1) / parts - begin;
      for (int64_t index = first_panel; index < end_panel; index += kPanels) {
        const float* panel = w.panel(index) + begin * kPanelRows;
        const int64_t next_panel = index + 1 < end_panel ? columns * kPanelRows : 0;
        const int64_t column = index * kPanelRows;
        TileOut to{nullptr,
                   p.out_stride,
                   HWY_MIN(w.rows(), end_panel * kPanelRows) - column,
                   p.bias == nullptr ? nullptr : p.bias + column,
                   part == 0,
                   part + 1 == parts,
                   p.epilogue};
        multiply_rows<kRows>(p, first_row, end_row, begin, depth, panel, next_panel, column, to);
      }
    }
  });
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <algorithm>
#include <cmath>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "regard/kernel/dispatch.h"

namespace regard::kernel {

HWY_EXPORT(Product);

void PackedMatrix::Release::operator()(float* at) const {
  ::operator delete (at, std::align_val_t{64});
}

PackedMatrix::PackedMatrix(const float* weights, int64_t rows, int64_t columns, int64_t stride,
                           Parallel& parallel)
    : rows_(rows), columns_(columns) {
  if (rows < 1 || columns < 1) {
    throw std::invalid_argument("PackedMatrix: " + std::to_string(rows) + " rows and " +
                                std::to_string(columns) + " columns; both must be at least 1");
  }
  const auto floats = static_cast<size_t>(panels() * kPanelRows * columns);
  panels_.reset(static_cast<float*>(::operator new (floats * sizeof(float), std::align_val_t{64})));
  parallel.run(panels(), [&](int64_t index, int) {
    float* to = panels_.get() + index * columns_ * kPanelRows;
    const int64_t first = index * kPanelRows;
    const int64_t count = std::min(kPanelRows, rows_ - first);
    for (int64_t c = 0; c < columns_; ++c) {
      for (int64_t r = 0; r < kPanelRows; ++r)
        to[c * kPanelRows + r] = r < count ? weights[(first + r) * stride + c] : 0.0F;
    }
  });
}

void packed_product(const PackedProduct& product, Parallel& parallel) {
  if (product.rows > 0) REGARD_DISPATCH(Product)(product, parallel);
}

bool packed_self_check() {
  // Tails everywhere: rows of tiles, panels, parts of the depth.
  constexpr int64_t kInputs = 27, kRows = 41, kColumns = 401;
  std::vector<float> weights(static_cast<size_t>(kRows * kColumns)),
      x(static_cast<size_t>(kInputs * kColumns)), bias(static_cast<size_t>(kRows)),
      out(static_cast<size_t>(kInputs * kRows));
  uint32_t state = 1;
  for (std::vector<float>* values : {&weights, &x, &bias})
    for (float& value : *values) {
      state = state * 1664525U + 1013904223U;
      value = static_cast<float>(state >> 8) / 8388608.0F - 1.0F;
    }
  Serial serial;
  const PackedMatrix matrix(weights.data(), kRows, kColumns, kColumns, serial);
  for (const Epilogue epilogue : {Epilogue::none, Epilogue::gelu}) {
    packed_product({&matrix, x.data(), kColumns, kInputs, out.data(), kRows, bias.data(), epilogue}, serial);
    for (int64_t i = 0; i < kInputs; ++i)
      for (int64_t r = 0; r < kRows; ++r) {
        double sum = bias[static_cast<size_t>(r)];
        for (int64_t c = 0; c < kColumns; ++c)
          sum += static_cast<double>(x[static_cast<size_t>(i * kColumns + c)]) *
                 weights[static_cast<size_t>(r * kColumns + c)];
        if (epilogue == Epilogue::gelu) sum *= 0.5 * std::erfc(-sum * std::sqrt(0.5));
        // A NaN is not near.
        if (!(std::abs(out[static_cast<size_t>(i * kRows + r)] - sum) <= 2e-5)) return false;
      }
  }
  return true;
}

}  // namespace regard::kernel

#endif  // HWY_ONCE

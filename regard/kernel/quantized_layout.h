#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "regard/kernel/quantized.h"
#include "regard/kernel/quantized_rows.h"
#include "regard/kernel/round_up.h"

namespace regard::kernel {

// How a product is cut into tasks, and its scratch: the rounded inputs, then for each worker sums, an
// expanded panel's bytes and its scales. A function of the problem alone.
struct QuantizedTiling {
  static constexpr int64_t kRows = 128;        // of inputs in a task: what is expanded once serves them all
  static constexpr int64_t kBlocks = 16;       // of columns at once: a panel's stay in the first cache
  static constexpr int64_t kRowsTogether = 8;  // up to so many inputs are rounded by the caller's thread

  QuantizedLayout layout;
  int64_t rows = 0;
  int64_t panels = 1;  // of weights in a task

  explicit QuantizedTiling(const QuantizedProduct& p) : layout(p.weights->layout()), rows(p.rows) {
    // One row is bound by memory: a few tasks for each of many threads. More: enough work to outweigh a task.
    panels = rows == 1 ? std::clamp<int64_t>(layout.panels() / 32, 1, 64) : 4;
  }

  int64_t panel_tasks() const { return (layout.panels() + panels - 1) / panels; }
  int64_t row_tasks() const { return (rows + kRows - 1) / kRows; }

  RoundedRows rounded_rows(std::byte* workspace) const {
    RoundedRows x;
    x.block_numbers = 1 + layout.groups();
    x.number_stride = layout.blocks() * x.block_numbers;
    x.value_stride = layout.blocks() * QuantizedLayout::kBlock;
    x.numbers = reinterpret_cast<float*>(workspace);
    x.values = reinterpret_cast<int8_t*>(workspace + number_bytes());
    return x;
  }
  int64_t shared_bytes() const {
    const int64_t wide = layout.format.bits == 8 ? 2 : 1;
    return number_bytes() + round_up(rows * layout.blocks() * QuantizedLayout::kBlock * wide, 64);
  }
  int64_t worker_bytes() const {
    if (rows == 1) return 0;
    const int64_t numbers = layout.blocks() * layout.groups() * (layout.format.has_minimum ? 2 : 1);
    return 4 * QuantizedLayout::kPanelRows * (kRows + numbers) +
           layout.blocks() * QuantizedLayout::kPanelRows * QuantizedLayout::kBlock;
  }

 private:
  // Each part begins where a vector of any target may.
  int64_t number_bytes() const { return round_up(rows * layout.blocks() * (1 + layout.groups()) * 4, 64); }
};

}  // namespace regard::kernel

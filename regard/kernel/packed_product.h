#pragma once

#include <cstdint>
#include <memory>

#include "regard/kernel/epilogue.h"
#include "regard/kernel/parallel.h"

// Products with a float32 matrix that was laid out for them once: what inference needs, whose weights stay.
namespace regard::kernel {

// A matrix [rows, columns] = [out, in] in panels of 16 rows: panel p holds, for each column, rows 16 p .. 16
// p + 15 side by side; rows past the last are 0.
class PackedMatrix {
 public:
  static constexpr int64_t kPanelRows = 16;

  // weights: row after row, `stride` floats apart; copied. Throws std::invalid_argument for a size below 1.
  PackedMatrix(const float* weights, int64_t rows, int64_t columns, int64_t stride, Parallel& parallel);

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  int64_t panels() const { return (rows_ + kPanelRows - 1) / kPanelRows; }
  const float* panel(int64_t index) const { return panels_.get() + index * columns_ * kPanelRows; }

 private:
  struct Release {
    void operator()(float* at) const;
  };
  int64_t rows_, columns_;
  std::unique_ptr<float, Release> panels_;
};

// out[i] = epilogue(w x[i] + bias): x [rows, w.columns] with x_stride floats from row to row, out [rows,
// w.rows] likewise. out may not overlap x.
struct PackedProduct {
  const PackedMatrix* weights = nullptr;
  const float* x = nullptr;
  int64_t x_stride = 0;
  int64_t rows = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
  const float* bias = nullptr;  // [w.rows], or null
  Epilogue epilogue = Epilogue::none;
};

// Allocates nothing. A row's bits depend neither on the other rows nor on the threads.
void packed_product(const PackedProduct& product, Parallel& parallel);

// Whether the target's product and a plain one agree on a small problem.
bool packed_self_check();

}  // namespace regard::kernel

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "regard/kernel/epilogue.h"
#include "regard/kernel/parallel.h"
#include "regard/kernel/types.h"

// Products with matrices of few bits: weights in groups of unsigned numbers with a scale, inputs rounded to
// int8 in blocks, integer sums of a group, float32 between groups.
namespace regard::kernel {

// w = scale * q + minimum, or scale * (q - offset()) without a minimum; `group` neighbours of a row share a
// scale. Known: 4, 5 bits in groups of 32 with and without a minimum; 6 bits in groups of 16; 7, 8 bits in
// groups of 32. These hold GGUF's Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K and Q8_0.
struct QuantizedFormat {
  int bits = 8;
  int64_t group = 32;
  bool has_minimum = false;

  int offset() const { return has_minimum ? 0 : 1 << (bits - 1); }
  bool operator==(const QuantizedFormat&) const = default;
};

// Ours, for weights that come in float32: pairs of products of 7 and 8 bits fit 16-bit sums, which AVX2 and
// plain NEON multiply fastest.
constexpr QuantizedFormat kInt8Format{7, 32, false};

// How a matrix lies in memory: panels of 16 rows, a panel in blocks of 32 columns, in a block for each four
// columns 16 x 4 neighbouring bytes, then the scales and minima of each group: 16 halfs each. Vectors of 4, 8
// and 16 rows read it in place. 4 bits: columns 4c.. in the lower and 4c + 16.. in the upper halves of bytes.
struct QuantizedLayout {
  static constexpr int64_t kPanelRows = 16;
  static constexpr int64_t kBlock = 32;  // columns; also of the inputs that share a scale

  QuantizedFormat format;
  int64_t rows = 0, columns = 0;

  int64_t panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
  int64_t blocks() const { return (columns + kBlock - 1) / kBlock; }
  int64_t groups() const { return kBlock / format.group; }  // of a block
  int64_t value_bytes() const { return kPanelRows * kBlock / (format.bits == 4 ? 2 : 1); }
  int64_t block_bytes() const {
    return value_bytes() + groups() * kPanelRows * 2 * (format.has_minimum ? 2 : 1);
  }
  int64_t panel_bytes() const { return blocks() * block_bytes(); }
};

// A matrix [rows, columns] in that layout. Scales are halfs times a power of two for each row, so those that
// come as halfs stay what they are; others are rounded to 11 bits.
class QuantizedMatrix {
 public:
  // Throws std::invalid_argument for an unknown format or a size below 1. Every row is to be set before use.
  QuantizedMatrix(QuantizedFormat format, int64_t rows, int64_t columns);

  const QuantizedLayout& layout() const { return layout_; }
  int64_t rows() const { return layout_.rows; }
  int64_t columns() const { return layout_.columns; }
  int64_t bytes() const;
  const uint8_t* panel(int64_t index) const { return panels_.get() + index * layout_.panel_bytes(); }
  // [panels * kPanelRows]
  const float* row_scales() const { return row_scales_.get(); }

  // values: [columns] below 2^bits; scales, minima (null without): [columns / group, rounded up]. Different
  // rows may be set at once.
  void set_row(int64_t row, const uint8_t* values, const float* scales, const float* minima);
  // Rounds a row of float32 to the format, which has no minimum: scale = largest magnitude / (2^(bits - 1) -
  // 1). A group with a non-finite weight becomes NaN.
  void round_row(int64_t row, const float* weights);
  // The row as float32.
  void get_row(int64_t row, float* weights) const;

 private:
  struct Release {
    void operator()(uint8_t* at) const;
  };
  QuantizedLayout layout_;
  std::unique_ptr<uint8_t, Release> panels_;
  std::unique_ptr<float[]> row_scales_;
};

// out[i] = epilogue(w x[i] (+ bias)): x [rows, w.columns] with x_stride
// floats from row to row, out [rows, w.rows]. out may not overlap x. Each 32 inputs are rounded to multiples
// of their largest magnitude / 127; an input that is not finite makes its row NaN.
struct QuantizedProduct {
  const QuantizedMatrix* weights = nullptr;
  const float* x = nullptr;
  int64_t x_stride = 0;
  int64_t rows = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
  const float* bias = nullptr;  // [w.rows], or null
  Epilogue epilogue = Epilogue::none;
};

// Bytes of scratch, to be aligned to 64.
size_t quantized_workspace(const QuantizedProduct& product, int workers);

// A row's bits depend neither on the other rows nor on the threads.
void quantized_product(const QuantizedProduct& product, std::byte* workspace, Parallel& parallel);

// The same by its definition, in double; also its own rounding of the inputs. out: [rows, w.rows] double.
void quantized_product_plain(const QuantizedProduct& product, double* out);

// Whether the target's product and the plain one agree on a small problem in each format.
bool quantized_self_check();

}  // namespace regard::kernel

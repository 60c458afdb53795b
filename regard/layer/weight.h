#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "regard/kernel/packed_product.h"
#include "regard/kernel/quantized.h"

namespace regard::layer {

// A weight matrix [rows, columns] = [out, in], as it lies in memory: a float32 tensor, which inference may
// also have laid out for its products; rows in some smaller form (GGUF blocks, bfloat16, ...) that are
// expanded to float32 only while they are used; or few bits that are multiplied as they are, with inputs
// rounded to int8 (kernel::quantized_product).
class Weight {
 public:
  // Writes rows [begin, end) to `out` as float32, row after row. Called from several threads at once.
  using ReadRows = std::function<void(int64_t begin, int64_t end, float* out)>;

  // In which numbers a dense weight is multiplied. bf16: both factors rounded to bfloat16, sums and the
  // result float32; gradients are multiplied in the same way, the weight itself keeps all its digits.
  enum class Products : uint8_t { f32, bf16 };

  Weight() = default;  // not there
  explicit Weight(at::Tensor dense, Products products = Products::f32);
  // packed: the same numbers; products that need no gradient are made with it (kernel::packed_product).
  Weight(at::Tensor dense, std::shared_ptr<const kernel::PackedMatrix> packed);
  Weight(int64_t rows, int64_t columns, ReadRows read);
  explicit Weight(std::shared_ptr<const kernel::QuantizedMatrix> quantized);

  explicit operator bool() const { return rows_ > 0; }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  // Undefined when the rows are in a smaller form.
  const at::Tensor& dense() const { return dense_; }
  Products products() const { return products_; }
  const kernel::QuantizedMatrix* quantized() const { return quantized_.get(); }  // null otherwise

  // x: [..., columns] float32 -> [..., rows]: epilogue(x W^T + bias). Rows in a smaller form carry no
  // gradient: x that requires one throws std::invalid_argument.
  at::Tensor linear(const at::Tensor& x, const at::Tensor& bias = {},
                    kernel::Epilogue epilogue = kernel::Epilogue::none) const;

  // ids: [...] int64 in [0, rows) -> [..., columns] float32.
  at::Tensor gather(const at::Tensor& ids) const;

 private:
  at::Tensor few_rows(const at::Tensor& x) const;
  at::Tensor many_rows(const at::Tensor& x) const;
  at::Tensor quantized_product(const at::Tensor& x, const at::Tensor& bias, kernel::Epilogue epilogue) const;
  at::Tensor packed_product(const at::Tensor& x, const at::Tensor& bias, kernel::Epilogue epilogue) const;

  int64_t rows_ = 0;
  int64_t columns_ = 0;
  at::Tensor dense_;
  Products products_ = Products::f32;
  std::shared_ptr<const kernel::PackedMatrix> packed_;  // of dense_
  ReadRows read_;
  std::shared_ptr<const kernel::QuantizedMatrix> quantized_;
};

}  // namespace regard::layer

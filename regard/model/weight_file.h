#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "regard/io/e5_file.h"
#include "regard/io/gguf.h"
#include "regard/io/model_folder.h"
#include "regard/model/precision.h"
#include "regard/model/weight_source.h"

namespace regard::model {

// The tensors of a model's file or files, as what layers take. f32: large matrices stay where they are, in
// the mapped file: float32 ones become tensors over that memory, those of products also panels for the
// processor; others are expanded row by row on use. int8: the matrices of products are laid out for the
// processor once, blocks as they are and floats rounded to kernel::kInt8Format, and the file's memory is
// given back. What is made here keeps the file open. Every shape is checked; errors are io::Error and name
// the tensor, the file, what it holds and what was expected.
class WeightFile final : public WeightSource {
 public:
  explicit WeightFile(std::shared_ptr<const io::ModelFolder> folder, Precision precision = Precision::f32);
  explicit WeightFile(std::shared_ptr<const io::Gguf> gguf, Precision precision = Precision::f32);
  explicit WeightFile(std::shared_ptr<const io::E5File> file, Precision precision = Precision::f32);

  bool has(std::string_view name) const override { return find_(name) != nullptr; }
  const std::string& source() const { return source_; }
  int64_t bytes() const { return bytes_; }  // of all tensors

  Precision precision() const override { return precision_; }
  layer::Weight matrix(const std::string& name, int64_t rows, int64_t columns,
                       std::vector<int64_t> order = {}) const override;
  layer::Weight stacked(const std::vector<Rows>& parts, int64_t columns) const override;
  layer::Weight table(const std::string& name, int64_t rows, int64_t columns) const override;
  bool in_blocks(const std::string& name) const override;
  layer::Weight part(const std::string& name, int64_t all_rows, int64_t begin, int64_t rows,
                     int64_t columns) const override;
  layer::Weight transposed_part(const std::string& name, int64_t all_rows, int64_t begin, int64_t rows,
                                int64_t columns) const override;
  // Copied, and so is a parameter of any shape.
  at::Tensor vector(const std::string& name, int64_t size) const override;
  void take(const std::string& name, at::Tensor& parameter, bool begun = false) const override;

 private:
  using Order = std::vector<int64_t>;

  const io::Tensor& require(const std::string& name, const std::vector<int64_t>& shape) const;
  // The form that a product in int8 keeps a tensor in.
  kernel::QuantizedFormat format_of(const io::Tensor& tensor) const;
  // Row r of the file's order[r] (begin + r if empty) becomes row first + r.
  void fill(kernel::QuantizedMatrix& matrix, int64_t first, int64_t rows, const io::Tensor& tensor,
            int64_t begin, const Order& order) const;
  at::Tensor dense(const io::Tensor& tensor) const;
  layer::Weight rows_of(const io::Tensor& tensor, int64_t begin, int64_t rows, int64_t columns) const;

  std::shared_ptr<const void> file_;
  std::function<const io::Tensor*(std::string_view)> find_;
  std::function<void(const io::Tensor&)> release_;  // gives the tensor's pages back
  Precision precision_ = Precision::f32;
  std::string source_;
  int64_t bytes_ = 0;
};

}  // namespace regard::model

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "regard/layer/weight.h"
#include "regard/model/precision.h"

namespace regard::model {

// Where a model's tensors come from, by the names of its published files: a file (weight_file.h), or a
// training that begins.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  virtual bool has(std::string_view name) const = 0;
  // In which products are made. The four below with a body matter to a source that rounds.
  virtual Precision precision() const { return Precision::f32; }

  // Of a product, [rows, columns]. order, if not empty: row r is row order[r] of what the name says.
  virtual layer::Weight matrix(const std::string& name, int64_t rows, int64_t columns,
                               std::vector<int64_t> order = {}) const = 0;
  // Several, one above the other, so that one product serves them all; nothing unless they can share a form,
  // which only int8 can.
  struct Rows {
    std::string name;
    int64_t rows = 0;
    std::vector<int64_t> order;  // as in matrix()
  };
  virtual layer::Weight stacked(const std::vector<Rows>& /*parts*/, int64_t /*columns*/) const { return {}; }
  // A table whose rows are looked up, not multiplied: of the file in either precision.
  virtual layer::Weight table(const std::string& name, int64_t rows, int64_t columns) const {
    return matrix(name, rows, columns);
  }
  // Both at once: rounded floats would spoil the table, blocks lose nothing.
  virtual bool in_blocks(const std::string& /*name*/) const { return false; }
  // Rows [begin, begin + rows) of a matrix [all_rows, columns].
  virtual layer::Weight part(const std::string& name, int64_t all_rows, int64_t begin, int64_t rows,
                             int64_t columns) const = 0;
  // The same of a matrix that lies transposed, as [columns, all_rows].
  virtual layer::Weight transposed_part(const std::string& name, int64_t all_rows, int64_t begin,
                                        int64_t rows, int64_t columns) const = 0;
  // [size] float32.
  virtual at::Tensor vector(const std::string& name, int64_t size) const = 0;
  // The parameter of a module that makes its own (files: of any shape): takes the numbers of that name;
  // a training that begins takes the parameter itself, and gives it its start unless `begun`.
  virtual void take(const std::string& name, at::Tensor& parameter, bool begun = false) const;
};

}  // namespace regard::model

// One array in NumPy's NPY form. For sources of this room only.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "regard/io/tensor.h"

namespace regard::io {

// The bytes before the data: magic, version and the dictionary. Throws std::invalid_argument for a type that
// NumPy has no name for or bytes that do not fit the shape.
std::string npy_header(const Tensor& array);

// What an NPY header says; `array.bytes` are the elements as they lie there.
struct NpyArray {
  Tensor array;
  bool fortran_order = false;
  std::string unsupported;  // not empty: why Regard cannot hold this array
};

// Throws Error with `source` when the bytes are not NPY, damaged or of another length than the header says.
NpyArray parse_npy(std::span<const std::byte> bytes, const std::string& source);

// The elements of an array in Fortran order, in C order.
std::vector<std::byte> to_c_order(const Tensor& fortran);

}  // namespace regard::io

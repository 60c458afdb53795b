#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace regard::model {

// A tensor's type and sizes for an error, "Long [2, 5]", or "undefined".
std::string shape_text(const at::Tensor& tensor);

}  // namespace regard::model

#include "regard/autograd/second_derivative.h"

#include <ATen/core/grad_mode.h>

#include <stdexcept>
#include <string>

namespace regard::autograd {

void refuse_second_derivative(const char* operation) {
  if (at::GradMode::is_enabled()) {
    throw std::invalid_argument(
        std::string(operation) +
        ": second derivatives are not available (create_graph = true); only first ones are");
  }
}

}  // namespace regard::autograd

#include "regard/model/shape_text.h"

#include <sstream>

namespace regard::model {

std::string shape_text(const at::Tensor& tensor) {
  std::ostringstream text;
  if (tensor.defined()) {
    text << tensor.scalar_type() << ' ' << tensor.sizes();
  } else {
    text << "undefined";
  }
  return text.str();
}

}  // namespace regard::model

#include "regard/model/weight_source.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace regard::model {

void WeightSource::take(const std::string& name, at::Tensor& parameter, bool /*begun*/) const {
  const at::NoGradGuard no_grad;
  if (parameter.dim() == 1) {
    parameter.copy_(vector(name, parameter.size(0)));
    return;
  }
  const layer::Weight rows = matrix(name, parameter.size(0), parameter.size(1));
  parameter.copy_(rows.dense().defined() ? rows.dense() : rows.gather(at::arange(rows.rows(), at::kLong)));
}

}  // namespace regard::model

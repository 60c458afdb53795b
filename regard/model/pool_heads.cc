#include "regard/model/pool_heads.h"

#include <ATen/ATen.h>

#include <stdexcept>
#include <string>

namespace regard::model {

at::Tensor pool_heads(const at::Tensor& projection, int64_t heads, int64_t wanted) {
  if (projection.dim() != 2 || wanted < 1 || heads < 1 || heads % wanted != 0 ||
      projection.size(0) % heads != 0) {
    throw std::invalid_argument("pool_heads: " + std::to_string(heads) + " heads cannot become " +
                                std::to_string(wanted) + "; they must be a multiple of it");
  }
  const int64_t size = projection.size(0) / heads, columns = projection.size(1);
  return projection.view({wanted, heads / wanted, size, columns}).mean(1).reshape({wanted * size, columns});
}

}  // namespace regard::model

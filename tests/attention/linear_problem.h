#pragma once

#include <string>
#include <vector>

#include "regard/attention/linear_reference.h"
#include "tests/attention/problem.h"

// Random problems of linear attention that own their data and results.
namespace regard::testing {

enum class Gate : uint8_t { none, head, token, feature };

struct LinearCase {
  Sizes sizes;
  attention::LinearSpec spec;
  Gate gate = Gate::none;
  bool delta = false;
  bool state = false;    // one before the first key
  bool lengths = false;  // padding behind each entry's keys
  Layout layout = Layout::contiguous;
  kernel::DType dtype = kernel::DType::f32;
  double strongest = 1.0;  // log decays lie in [-strongest, 0]

  std::string to_string() const;
};

struct LinearProblem {
  LinearProblem(const LinearCase& c, uint64_t seed);

  // Borrows; every output there can be.
  attention::LinearOperands operands();
  attention::LinearArrays arrays() { return linear_arrays(spec, operands()); }

  attention::LinearSpec spec;
  Tensor q, k, v, out, denominators, log_decay, beta, state, norm, state_out, norm_out;
  std::vector<int64_t> lengths;
};

// Everything that can be random is; small and odd sizes, some around the chunk.
LinearCase random_linear_case(std::mt19937_64& random);

std::vector<double> doubles_of(const Tensor& tensor);

}  // namespace regard::testing

#pragma once

#include <string>
#include <vector>

#include "regard/attention/spec.h"
#include "tests/support/safetensors.h"

// One case of tests/golden/attention (its README.txt states the meaning): spec, operands and the file with
// the expected values. Operands point into the struct's own vectors.
namespace regard::testing {

struct GoldenCase {
  nlohmann::json entry;
  SafeTensors file;
  attention::Spec spec;
  attention::Operands operands;
  std::vector<float> q, k, v, bias, slopes, sinks;
  std::vector<uint8_t> mask;
  std::vector<int64_t> lengths;
  std::vector<int32_t> query_segments, key_segments;

  explicit GoldenCase(const std::string& name);
  std::vector<double> expected(const std::string& name) const { return file[name].to<double>(); }

 private:
  void read_mask(const kernel::Extents& square);
};

// Names of all cases, in the file's order.
std::vector<std::string> golden_names();

// Sizes aligned to the right, 1 in front.
kernel::Extents four_axes(const std::vector<int64_t>& shape);

}  // namespace regard::testing

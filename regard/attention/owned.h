#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "regard/attention/backward.h"
#include "regard/attention/lower.h"

// What forms that are composed of several calls share. For the room's own use.
namespace regard::attention {

// A contiguous float32 array that owns its memory; zero at first.
class Owned {
 public:
  Owned() = default;
  explicit Owned(const kernel::Extents& size) : size_(size), data_(element_count("scratch", size)) {}

  View<float> view() { return {data_.data(), size_}; }
  View<const float> const_view() const { return {data_.data(), size_}; }
  const kernel::Extents& size() const { return size_; }

 private:
  kernel::Extents size_{};
  std::vector<float> data_;
};

// Throws std::invalid_argument unless the call is q, k, v, out and perhaps lse, all in float32.
inline void check_plain(const char* form, const Operands& operands) {
  check_form({}, operands);
  const auto refuse = [&](const std::string& what) {
    throw std::invalid_argument(std::string(form) + ": " + what);
  };
  if (operands.bias || operands.slopes || operands.sinks)
    refuse("bias, slopes or sinks are given; allowed: none");
  if (operands.q.dtype != kernel::DType::f32 || operands.out.dtype != kernel::DType::f32) {
    refuse(std::string("q, k, v are ") + kernel::name(operands.q.dtype) + "; allowed: f32");
  }
}

inline void check_plain_gradients(const char* form, const Gradients& gradients) {
  for (const AnyView& gradient : {gradients.q, gradients.k, gradients.v}) {
    if (gradient && gradient.dtype != kernel::DType::f32) {
      throw std::invalid_argument(std::string(form) + ": a gradient is " + kernel::name(gradient.dtype) +
                                  "; allowed: f32");
    }
  }
}

}  // namespace regard::attention

#include "regard/attention/mask.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>

namespace regard::attention {
namespace {

std::string to_string(const Mask::Part& part) {
  switch (part.kind) {
    case Mask::Part::Kind::causal:
      return std::string("causal(") + name(part.align) + ")";
    case Mask::Part::Kind::window:
      return "window(" + std::to_string(part.left) + ", " + std::to_string(part.right) + ", " +
             name(part.align) + ")";
    case Mask::Part::Kind::key_lengths:
      return "key_lengths";
    case Mask::Part::Kind::dense:
      return "dense";
  }
  return "unknown";
}

}  // namespace

const char* name(Align align) {
  return align == Align::top_left ? "top_left" : "bottom_right";
}

Mask Mask::causal(Align align) {
  return Mask(Part{.kind = Part::Kind::causal, .align = align});
}

Mask Mask::window(int64_t left, int64_t right, Align align) {
  if (left < -1 || right < -1) {
    throw std::invalid_argument("Mask::window: (left, right) = (" + std::to_string(left) + ", " +
                                std::to_string(right) + "); allowed: 0 or more, or -1 for no bound");
  }
  if (left == -1 && right == -1) return {};
  return Mask(Part{.kind = Part::Kind::window, .align = align, .left = left, .right = right});
}

Mask Mask::key_lengths() {
  return Mask(Part{.kind = Part::Kind::key_lengths});
}

Mask Mask::dense() {
  return Mask(Part{.kind = Part::Kind::dense});
}

Mask operator&(const Mask& a, const Mask& b) {
  Mask both;
  std::set_union(a.parts_.begin(), a.parts_.end(), b.parts_.begin(), b.parts_.end(),
                 std::back_inserter(both.parts_));
  return both;
}

bool Mask::uses_key_lengths() const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [](const Part& part) { return part.kind == Part::Kind::key_lengths; });
}

bool Mask::uses_dense() const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [](const Part& part) { return part.kind == Part::Kind::dense; });
}

std::string Mask::to_string() const {
  if (parts_.empty()) return "everything";
  std::string text;
  for (const Part& part : parts_) {
    if (!text.empty()) text += " & ";
    text += attention::to_string(part);
  }
  return text;
}

}  // namespace regard::attention

#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace regard::attention {

// Where row i of Lq queries stands among Lk keys: at position i (top_left), or at i + Lk - Lq (bottom_right,
// so that the last query sees up to the last key). Never guessed: the caller says which.
enum class Align : uint8_t { top_left, bottom_right };

// Which keys a query may attend to: a value that can be compared, printed and combined. Data that a mask
// needs (lengths, a dense mask) lies in Operands; the mask only says that it is there. In a dense mask true =
// may attend. "position" below is the row's place among the keys, see Align.
class Mask {
 public:
  Mask() = default;  // everything is visible

  static Mask causal(Align align);  // j <= position
  // position - left <= j <= position + right; -1: no bound on that side. Throws std::invalid_argument below.
  static Mask window(int64_t left, int64_t right, Align align);
  static Mask key_lengths();  // j < Operands::key_lengths[batch]
  static Mask dense();        // Operands::dense_mask(batch, head, i, j)

  // Visible in both. The order of the parts does not matter: a & b == b & a, a & a == a.
  friend Mask operator&(const Mask& a, const Mask& b);

  bool sees_everything() const { return parts_.empty(); }
  bool uses_key_lengths() const;
  bool uses_dense() const;
  std::string to_string() const;  // "causal(bottom_right) & window(128, 0, bottom_right)"
  bool operator==(const Mask& other) const = default;

  // One conjunct. Public because lowering and printing read it.
  struct Part {
    enum class Kind : uint8_t { causal, window, key_lengths, dense };
    Kind kind;
    Align align = Align::top_left;
    int64_t left = -1;
    int64_t right = -1;
    auto operator<=>(const Part& other) const = default;
  };
  const std::vector<Part>& parts() const { return parts_; }

 private:
  explicit Mask(const Part& part) : parts_{part} {}

  std::vector<Part> parts_;  // sorted, no two equal
};

const char* name(Align align);

}  // namespace regard::attention

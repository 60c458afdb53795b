#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace regard::attention {

// Where row i of Lq queries stands among Lk keys: at position i (top_left), or at i + Lk - Lq (bottom_right,
// so that the last query sees up to the last key). Never guessed: the caller says which.
enum class Align : uint8_t { top_left, bottom_right };

// What a window does that would reach over the border of a grid: move inwards, so that every query sees
// equally many keys (NATTEN), or lose the keys outside.
enum class Border : uint8_t { shift, mask };

// What masks are made of; Mask's constructors say what each means.
namespace part {

struct Causal {
  Align align;
  auto operator<=>(const Causal&) const = default;
};
struct Window {
  int64_t left;
  int64_t right;
  Align align;
  auto operator<=>(const Window&) const = default;
};
struct Prefix {
  int64_t count;
  auto operator<=>(const Prefix&) const = default;
};
struct FirstRows {
  int64_t count;
  auto operator<=>(const FirstRows&) const = default;
};
struct Stride {
  int64_t period;
  Align align;
  auto operator<=>(const Stride&) const = default;
};
struct SameBlock {
  int64_t size;
  Align align;
  auto operator<=>(const SameBlock&) const = default;
};
struct BlockTail {
  int64_t size;
  int64_t tail;
  auto operator<=>(const BlockTail&) const = default;
};
struct Neighbourhood {
  int64_t height;
  int64_t width;
  int64_t kernel_y;
  int64_t kernel_x;
  int64_t dilation = 1;
  Border border = Border::shift;
  auto operator<=>(const Neighbourhood&) const = default;
};
struct KeyLengths {
  auto operator<=>(const KeyLengths&) const = default;
};
struct Segments {
  auto operator<=>(const Segments&) const = default;
};
struct Blocks {
  int64_t rows;
  int64_t keys;
  auto operator<=>(const Blocks&) const = default;
};
struct Dense {
  auto operator<=>(const Dense&) const = default;
};

}  // namespace part

// Which keys a query may attend to: a value that can be compared, printed and combined. It is a union of
// terms, each of which is what all its parts allow. Data that a part needs (lengths, segments, tables) lies
// in Operands; the mask only says that it is there. In tables true = may attend. "position" below is the
// row's place among the keys, see Align; i is the row's own number. Constructors throw std::invalid_argument
// on numbers that mean nothing.
class Mask {
 public:
  using Part = std::variant<part::Causal, part::Window, part::Prefix, part::FirstRows, part::Stride,
                            part::SameBlock, part::BlockTail, part::Neighbourhood, part::KeyLengths,
                            part::Segments, part::Blocks, part::Dense>;
  using Term = std::vector<Part>;  // sorted, no two equal
  static constexpr int64_t kMostTerms = 8;
  static constexpr int64_t kMostParts = 8;  // of a term

  Mask() = default;  // everything is visible

  static Mask causal(Align align);  // j <= position
  // position - left <= j <= position + right; -1: no bound on that side.
  static Mask window(int64_t left, int64_t right, Align align);
  static Mask prefix(int64_t count);      // j < count; a prefix language model is causal | prefix
  static Mask first_rows(int64_t count);  // i < count: tokens that look at everything
  // (position - j) mod period == 0, "every third word". Kernels work in tiles: for a period below about 32
  // they visit every tile and mask most of it, at the cost of the same mask without the stride.
  static Mask stride(int64_t period, Align align);
  static Mask same_block(int64_t size, Align align);           // floor(position / size) == floor(j / size)
  static Mask block_tail(int64_t size, int64_t tail);          // the last `tail` keys of each `size` of them:
                                                               // j mod size >= size - tail
  static Mask key_lengths();                                   // j < Operands::key_lengths[batch]
  static Mask segments();                                      // query_segments[i] == key_segments[j]
  static Mask blocks(int64_t block_rows, int64_t block_keys);  // Operands::block_mask at
                                                               // (i / block_rows, j / block_keys)
  static Mask dense();                                         // Operands::dense_mask(batch, head, i, j)
  // Queries and keys are the same grid, row by row: Lq == Lk == height * width. A query sees the kernel_y x
  // kernel_x keys around it, `dilation` apart, on each axis alone: kernel / 2 before it and the rest from it
  // on. With Border::shift a kernel times its dilation must fit into the grid. (Hassani et al. 2022, arXiv
  // 2204.07143, section 3; dilation: Hassani and Shi 2022, arXiv 2209.15001, section 3.)
  static Mask neighbourhood(const part::Neighbourhood& grid);

  // Visible in both, or in any. The order does not matter: a & b == b & a, a & a == a, a | (a & b) == a; and
  // a & (b | c) == (a & b) | (a & c). Throw std::invalid_argument beyond kMostTerms or kMostParts.
  friend Mask operator&(const Mask& a, const Mask& b);
  friend Mask operator|(const Mask& a, const Mask& b);

  bool sees_everything() const { return terms_.empty(); }
  // Whether some term has a part of this type: uses<part::Dense>().
  template <class P>
  bool uses() const {
    return std::any_of(terms_.begin(), terms_.end(), [](const Term& term) {
      return std::any_of(term.begin(), term.end(),
                         [](const Part& part) { return std::holds_alternative<P>(part); });
    });
  }
  bool uses_key_lengths() const { return uses<part::KeyLengths>(); }
  bool uses_dense() const { return uses<part::Dense>(); }
  bool depends_on_data() const;
  std::string to_string() const;  // "(causal(top_left) & stride(3, top_left)) | prefix(4)"
  bool operator==(const Mask& other) const = default;

  // Empty: everything is visible. Sorted, no term implies another. Lowering and printing read it.
  const std::vector<Term>& terms() const { return terms_; }

 private:
  explicit Mask(const Part& part) : terms_{{part}} {}
  static Mask of_terms(std::vector<Term> terms, const char* what);

  std::vector<Term> terms_;
};

const char* name(Align align);
const char* name(Border border);

}  // namespace regard::attention

#include "regard/attention/mask.h"

#include <iterator>
#include <stdexcept>

namespace regard::attention {
namespace {

struct ToString {
  static std::string number(int64_t n) { return std::to_string(n); }

  std::string operator()(const part::Causal& p) const { return std::string("causal(") + name(p.align) + ")"; }
  std::string operator()(const part::Window& p) const {
    return "window(" + number(p.left) + ", " + number(p.right) + ", " + name(p.align) + ")";
  }
  std::string operator()(const part::Prefix& p) const { return "prefix(" + number(p.count) + ")"; }
  std::string operator()(const part::FirstRows& p) const { return "first_rows(" + number(p.count) + ")"; }
  std::string operator()(const part::Stride& p) const {
    return "stride(" + number(p.period) + ", " + name(p.align) + ")";
  }
  std::string operator()(const part::SameBlock& p) const {
    return "same_block(" + number(p.size) + ", " + name(p.align) + ")";
  }
  std::string operator()(const part::BlockTail& p) const {
    return "block_tail(" + number(p.size) + ", " + number(p.tail) + ")";
  }
  std::string operator()(const part::Neighbourhood& p) const {
    return "neighbourhood(" + number(p.height) + " x " + number(p.width) + ", " + number(p.kernel_y) + " x " +
           number(p.kernel_x) + ", dilation " + number(p.dilation) + ", " + name(p.border) + ")";
  }
  std::string operator()(const part::KeyLengths&) const { return "key_lengths"; }
  std::string operator()(const part::Segments&) const { return "segments"; }
  std::string operator()(const part::Blocks& p) const {
    return "blocks(" + number(p.rows) + ", " + number(p.keys) + ")";
  }
  std::string operator()(const part::Dense&) const { return "dense"; }
};

[[noreturn]] void refuse(const Mask::Part& part, const char* allowed) {
  throw std::invalid_argument("Mask: " + std::visit(ToString(), part) + "; allowed: " + allowed);
}

}  // namespace

const char* name(Align align) {
  return align == Align::top_left ? "top_left" : "bottom_right";
}

const char* name(Border border) {
  return border == Border::shift ? "shift" : "mask";
}

Mask Mask::causal(Align align) {
  return Mask(part::Causal{align});
}

Mask Mask::window(int64_t left, int64_t right, Align align) {
  const part::Window window{left, right, align};
  if (left < -1 || right < -1) refuse(window, "bounds of 0 or more, or -1 for no bound");
  if (left == -1 && right == -1) return {};
  return Mask(window);
}

Mask Mask::prefix(int64_t count) {
  const part::Prefix prefix{count};
  if (count < 0) refuse(prefix, "0 or more keys");
  return Mask(prefix);
}

Mask Mask::first_rows(int64_t count) {
  const part::FirstRows rows{count};
  if (count < 0) refuse(rows, "0 or more rows");
  return Mask(rows);
}

Mask Mask::stride(int64_t period, Align align) {
  const part::Stride stride{period, align};
  if (period < 1) refuse(stride, "a period of at least 1");
  return Mask(stride);
}

Mask Mask::same_block(int64_t size, Align align) {
  const part::SameBlock block{size, align};
  if (size < 1) refuse(block, "blocks of at least 1");
  return Mask(block);
}

Mask Mask::block_tail(int64_t size, int64_t tail) {
  const part::BlockTail block{size, tail};
  if (size < 1 || tail < 0 || tail > size) refuse(block, "blocks of at least 1, of which 0 up to all keys");
  return Mask(block);
}

Mask Mask::neighbourhood(const part::Neighbourhood& grid) {
  constexpr int64_t kMost = int64_t{1} << 30;  // keeps products in range
  for (const int64_t size : {grid.height, grid.width, grid.kernel_y, grid.kernel_x, grid.dilation}) {
    if (size < 1 || size > kMost) refuse(grid, "sizes of 1 to 2^30");
  }
  if (grid.border == Border::shift &&
      (grid.kernel_y * grid.dilation > grid.height || grid.kernel_x * grid.dilation > grid.width)) {
    refuse(grid, "a kernel times its dilation that fits into the grid, or Border::mask");
  }
  return Mask(grid);
}

Mask Mask::key_lengths() {
  return Mask(part::KeyLengths{});
}

Mask Mask::segments() {
  return Mask(part::Segments{});
}

Mask Mask::blocks(int64_t block_rows, int64_t block_keys) {
  const part::Blocks blocks{block_rows, block_keys};
  if (block_rows < 1 || block_keys < 1) refuse(blocks, "blocks of at least 1 row and 1 key");
  return Mask(blocks);
}

Mask Mask::dense() {
  return Mask(part::Dense{});
}

// The normal form: a term that asks for all that another one asks for, and more, adds nothing to the union.
Mask Mask::of_terms(std::vector<Term> terms, const char* what) {
  std::sort(terms.begin(), terms.end());
  terms.erase(std::unique(terms.begin(), terms.end()), terms.end());
  Mask mask;
  for (const Term& term : terms) {
    const bool implied = std::any_of(terms.begin(), terms.end(), [&](const Term& other) {
      return &other != &term && std::includes(term.begin(), term.end(), other.begin(), other.end());
    });
    if (!implied) mask.terms_.push_back(term);
  }
  size_t parts = 0;
  for (const Term& term : mask.terms_) parts = std::max(parts, term.size());
  if (mask.terms_.size() > kMostTerms || parts > kMostParts) {
    throw std::invalid_argument(std::string("Mask: ") + what + " would have " +
                                std::to_string(mask.terms_.size()) + " alternatives of up to " +
                                std::to_string(parts) + " parts; allowed: at most " +
                                std::to_string(kMostTerms) + " of at most " + std::to_string(kMostParts));
  }
  return mask;
}

Mask operator&(const Mask& a, const Mask& b) {
  if (a.sees_everything()) return b;
  if (b.sees_everything()) return a;
  std::vector<Mask::Term> terms;
  for (const Mask::Term& left : a.terms_) {
    for (const Mask::Term& right : b.terms_) {
      Mask::Term& both = terms.emplace_back();
      std::set_union(left.begin(), left.end(), right.begin(), right.end(), std::back_inserter(both));
    }
  }
  return Mask::of_terms(std::move(terms), "a & b");
}

Mask operator|(const Mask& a, const Mask& b) {
  if (a.sees_everything() || b.sees_everything()) return {};
  std::vector<Mask::Term> terms = a.terms_;
  terms.insert(terms.end(), b.terms_.begin(), b.terms_.end());
  return Mask::of_terms(std::move(terms), "a | b");
}

bool Mask::depends_on_data() const {
  return uses<part::KeyLengths>() || uses<part::Segments>() || uses<part::Blocks>() || uses<part::Dense>();
}

std::string Mask::to_string() const {
  if (terms_.empty()) return "everything";
  std::string text;
  for (const Term& term : terms_) {
    std::string conjunction;
    for (const Part& part : term) {
      if (!conjunction.empty()) conjunction += " & ";
      conjunction += std::visit(ToString(), part);
    }
    if (!text.empty()) text += " | ";
    const bool grouped = terms_.size() > 1 && term.size() > 1;
    if (grouped) text += '(';
    text += conjunction;
    if (grouped) text += ')';
  }
  return text;
}

}  // namespace regard::attention

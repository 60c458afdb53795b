#include "regard/text/pre_split.h"

#include <cstdint>
#include <utility>

#include "regard/text/unicode.h"
#include "regard/text/utf8.h"

namespace regard::text {
namespace {

// The expressions, for reading beside the scanners:
//   gpt2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

enum class Class { end, letter, number, space, other };

struct Next {
  Class kind = Class::end;
  char32_t value = 0;
  size_t after = 0;  // offset behind it
};

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  Next at(size_t offset) const {
    if (offset >= text_.size()) return {};
    const CodePoint c = decode_valid(text_, offset);
    const Class kind = c.value < 0x80       ? ascii(c.value)
                       : is_letter(c.value) ? Class::letter
                       : is_number(c.value) ? Class::number
                       : is_space(c.value)  ? Class::space
                                            : Class::other;
    return {kind, c.value, offset + c.length};
  }

  size_t skip(Class kind, size_t offset, size_t limit = SIZE_MAX) const {
    for (Next next = at(offset); next.kind == kind && limit > 0; next = at(offset), --limit)
      offset = next.after;
    return offset;
  }

  size_t skip_breaks(size_t offset) const {
    while (offset < text_.size() && (text_[offset] == '\r' || text_[offset] == '\n')) ++offset;
    return offset;
  }

  // Behind a contraction that starts at the apostrophe at `offset`, else `offset`.
  size_t contraction(size_t offset, bool any_case) const {
    const auto letter = [&](size_t& i) -> char32_t {
      const Next next = at(i);
      i = next.after;
      if (next.kind == Class::end) return 0;
      // Case folding, which the expressions ask for, makes the long s an s.
      if (any_case && next.value == 0x17F) return 's';
      return any_case && next.value >= 'A' && next.value <= 'Z' ? next.value + 32 : next.value;
    };
    size_t i = offset + 1;
    const char32_t first = letter(i);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return i;
    if (first != 'r' && first != 'v' && first != 'l') return offset;
    const char32_t second = letter(i);
    return second == (first == 'l' ? U'l' : U'e') ? i : offset;
  }

  // A run of white space at `offset`: all of it at the end of the text, else without its last character,
  // which belongs to what follows; at least one.
  size_t space_run(size_t offset) const {
    size_t last = offset, end = offset;
    for (Next next = at(offset); next.kind == Class::space; next = at(end)) {
      last = end;
      end = next.after;
    }
    return end == text_.size() || last == offset ? end : last;
  }

  // Behind the last line break of the white space at `offset`, else `offset`.
  size_t space_to_break(size_t offset) const {
    size_t found = offset;
    for (Next next = at(offset); next.kind == Class::space; next = at(next.after)) {
      if (next.value == '\r' || next.value == '\n') found = next.after;
    }
    return found;
  }

 private:
  static Class ascii(char32_t c) {
    if ((c | 32) >= 'a' && (c | 32) <= 'z') return Class::letter;
    if (c >= '0' && c <= '9') return Class::number;
    return c == ' ' || (c >= '\t' && c <= '\r') ? Class::space : Class::other;
  }

  std::string_view text_;
};

// Where the piece that starts at `begin` ends.
size_t gpt2_piece(const Scanner& scan, size_t begin) {
  const Next first = scan.at(begin);
  if (first.value == '\'')
    if (const size_t end = scan.contraction(begin, false); end > begin) return end;
  const Next body = first.value == ' ' ? scan.at(first.after) : first;
  if (body.kind == Class::space || body.kind == Class::end) return scan.space_run(begin);
  return scan.skip(body.kind, body.after);
}

size_t llama3_piece(const Scanner& scan, size_t begin, size_t digits) {
  const Next first = scan.at(begin);
  if (first.value == '\'')
    if (const size_t end = scan.contraction(begin, true); end > begin) return end;
  if (first.kind == Class::letter) return scan.skip(Class::letter, first.after);
  if (first.kind == Class::number) return scan.skip(Class::number, first.after, digits - 1);
  if (first.value != '\r' && first.value != '\n')
    if (scan.at(first.after).kind == Class::letter) return scan.skip(Class::letter, first.after);
  const Next body = first.value == ' ' ? scan.at(first.after) : first;
  if (body.kind == Class::other) return scan.skip_breaks(scan.skip(Class::other, body.after));
  if (const size_t end = scan.space_to_break(begin); end > begin) return end;
  return scan.space_run(begin);
}

template <class Piece>
void cut(std::string_view text, size_t base, const std::function<void(Span)>& piece, Piece&& piece_end) {
  const Scanner scan(text);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = piece_end(scan, begin);
    piece({base + begin, base + end});
    begin = end;
  }
}

void smollm(std::string_view text, const std::function<void(Span)>& piece) {
  const Scanner scan(text);
  const auto between = [&](size_t begin, size_t end) {
    cut(text.substr(begin, end - begin), begin, piece, gpt2_piece);
  };
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Next next = scan.at(at);
    if (next.kind == Class::number) {
      between(begin, at);
      piece({at, next.after});
      begin = next.after;
    }
    at = next.after;
  }
  between(begin, text.size());
}

}  // namespace

void pre_split(PreSplit kind, std::string_view text, const std::function<void(Span)>& piece) {
  switch (kind) {
    case PreSplit::gpt2:
      return cut(text, 0, piece, gpt2_piece);
    case PreSplit::smollm:
      return smollm(text, piece);
    case PreSplit::llama3:
    case PreSplit::qwen2:
      return cut(text, 0, piece,
                 [digits = kind == PreSplit::llama3 ? 3 : 1](const Scanner& scan, size_t begin) {
                   return llama3_piece(scan, begin, digits);
                 });
  }
}

std::optional<PreSplit> known_split_regex(std::string_view regex) {
  if (regex == kLlama3) return PreSplit::llama3;
  if (regex == kQwen2) return PreSplit::qwen2;
  return std::nullopt;
}

std::optional<PreSplit> known_split_name(std::string_view name) {
  static constexpr std::pair<std::string_view, PreSplit> kNames[] = {{"gpt-2", PreSplit::gpt2},
                                                                     {"smollm", PreSplit::smollm},
                                                                     {"llama-bpe", PreSplit::llama3},
                                                                     {"qwen2", PreSplit::qwen2}};
  for (const auto& [known, kind] : kNames)
    if (name == known) return kind;
  return std::nullopt;
}

}  // namespace regard::text

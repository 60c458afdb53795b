#include "regard/text/charsmap.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "regard/io/error.h"
#include "regard/text/utf8.h"

namespace regard::text {
namespace {

uint32_t u32_at(std::string_view bytes, size_t at) {
  uint32_t out = 0;
  for (size_t i = 0; i < 4; ++i) out |= uint32_t(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return out;
}

std::optional<std::string> decode_base64(std::string_view text) {
  std::array<int, 256> value;
  value.fill(-1);
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < kDigits.size(); ++i) value[static_cast<unsigned char>(kDigits[i])] = int(i);
  while (text.ends_with('=')) text.remove_suffix(1);
  if (text.size() % 4 == 1) return std::nullopt;
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int digit = value[static_cast<unsigned char>(c)];
    if (digit < 0) return std::nullopt;
    bits = (bits << 6 | uint32_t(digit)) & 0xFFFFFF;
    count += 6;
    if (count >= 8) out.push_back(static_cast<char>(bits >> (count -= 8)));
  }
  return out;
}

// A damaged map may have cycles; no real key is nearly as long.
constexpr size_t kMaxKey = 1024;

// The units of Darts-clone's double array.
bool has_leaf(uint32_t unit) {
  return unit >> 8 & 1;
}
uint32_t leaf_value(uint32_t unit) {
  return unit & 0x7FFFFFFF;
}
uint32_t label(uint32_t unit) {
  return unit & 0x800000FF;
}
uint32_t offset(uint32_t unit) {
  return (unit >> 10) << ((unit & 0x200) >> 6);
}

}  // namespace

Charsmap Charsmap::from_base64(std::string_view text, std::string_view source) {
  auto bytes = decode_base64(text);
  if (!bytes) io::fail(source, "precompiled_charsmap is not base64");
  return parse(std::move(*bytes), source);
}

Charsmap Charsmap::parse(std::string bytes, std::string_view source) {
  if (bytes.size() < 4) io::fail(source, "precompiled_charsmap is cut");
  const size_t size = u32_at(bytes, 0);
  if (size < 4 || size % 4 != 0 || size > bytes.size() - 4)
    io::fail(source, "precompiled_charsmap says that its trie has " + std::to_string(size) + " bytes, of " +
                         std::to_string(bytes.size() - 4));
  Charsmap out;
  for (size_t at = 4; at < 4 + size; at += 4) out.trie_.push_back(u32_at(bytes, at));
  bytes.erase(0, 4 + size);
  out.replacements_ = std::move(bytes);
  if (!out.replacements_.empty() && out.replacements_.back() != '\0')
    io::fail(source, "precompiled_charsmap ends inside a replacement");
  if (find_invalid_utf8(out.replacements_)) io::fail(source, "precompiled_charsmap holds invalid UTF-8");
  return out;
}

Charsmap::Match Charsmap::longest(std::string_view text) const {
  Match best;
  uint32_t at = offset(trie_[0]);
  for (size_t i = 0; i < std::min(text.size(), kMaxKey); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    at ^= byte;
    if (byte == 0 || at >= trie_.size() || label(trie_[at]) != byte) break;
    const bool leaf = has_leaf(trie_[at]);
    at ^= offset(trie_[at]);
    if (!leaf || at >= trie_.size()) continue;
    const size_t begin = leaf_value(trie_[at]);
    // A damaged map may point anywhere; a replacement starts with a whole character.
    if (begin > replacements_.size() ||
        (begin < replacements_.size() && (replacements_[begin] & 0xC0) == 0x80))
      continue;
    best = {i + 1, std::string_view(replacements_).substr(begin, replacements_.find('\0', begin) - begin)};
  }
  // And it may know strings that end inside a character.
  if (best.length < text.size() && (text[best.length] & 0xC0) == 0x80) return {};
  return best;
}

AlignedText Charsmap::normalize(std::string_view text, size_t base) const {
  AlignedText out;
  for (size_t at = 0; at < text.size();) {
    const Match match = longest(text.substr(at));
    if (match.length == 0) {
      const CodePoint c = decode_valid(text, at);
      out.append(c.value, {base + at, base + at + c.length});
      at += c.length;
      continue;
    }
    const Span source{base + at, base + at + match.length};
    for_each_code_point(match.replacement, [&](char32_t c, size_t, size_t) { out.append(c, source); });
    at += match.length;
  }
  return out;
}

}  // namespace regard::text

#include "regard/text/bert_normalizer.h"

#include <algorithm>
#include <string>
#include <vector>

#include "regard/text/unicode.h"

namespace regard::text {
namespace {

struct Placed {
  char32_t value;
  Span source;
};

bool is_bert_chinese(char32_t c) {
  // The sixth range starts at 2B920 (not 2B820) in the published code; ids depend on it.
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

bool is_dropped(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  return c == 0 || c == 0xFFFD || is_control_like(c);
}

// Canonical decomposition in canonical order, without non-spacing marks.
std::vector<Placed> without_accents(const std::vector<Placed>& in) {
  std::vector<Placed> out;
  std::u32string parts;
  for (const Placed& c : in) {
    parts.clear();
    append_decomposed(c.value, parts);
    for (const char32_t part : parts) out.push_back({part, c.source});
  }
  for (auto at = out.begin(); at != out.end();) {
    if (combining_class(at->value) == 0) {
      ++at;
      continue;
    }
    auto stop = at;
    while (stop != out.end() && combining_class(stop->value) != 0) ++stop;
    std::stable_sort(at, stop, [](const Placed& a, const Placed& b) {
      return combining_class(a.value) < combining_class(b.value);
    });
    at = stop;
  }
  std::erase_if(out, [](const Placed& c) { return is_nonspacing_mark(c.value); });
  return out;
}

}  // namespace

AlignedText BertNormalizer::operator()(std::string_view text, size_t base) const {
  std::vector<Placed> code_points;
  for_each_code_point(text, [&](char32_t c, size_t at, size_t length) {
    if (clean_text && is_dropped(c)) return;
    if (clean_text && is_space(c)) c = ' ';
    const Span source{base + at, base + at + length};
    const bool apart = handle_chinese_chars && is_bert_chinese(c);
    if (apart) code_points.push_back({' ', source});
    code_points.push_back({c, source});
    if (apart) code_points.push_back({' ', source});
  });
  if (strip_accents.value_or(lowercase)) code_points = without_accents(code_points);
  AlignedText out;
  std::u32string lower;
  for (const Placed& c : code_points) {
    lower.clear();
    if (lowercase) {
      append_lowercase(c.value, lower);
    } else {
      lower.push_back(c.value);
    }
    for (const char32_t part : lower) out.append(part, c.source);
  }
  return out;
}

}  // namespace regard::text

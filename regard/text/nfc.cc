#include "regard/text/nfc.h"

#include "regard/text/unicode.h"

namespace regard::text {
namespace {

void append_cluster(std::string_view cluster, size_t base, AlignedText& out) {
  const std::string composed = to_nfc(cluster);
  const bool same = composed == cluster;
  for_each_code_point(composed, [&](char32_t c, size_t at, size_t length) {
    out.append(c, same ? Span{base + at, base + at + length} : Span{base, base + cluster.size()});
  });
}

}  // namespace

std::optional<AlignedText> aligned_nfc(std::string_view text, size_t base) {
  if (to_nfc(text) == text) return std::nullopt;
  AlignedText out;
  size_t begin = 0;
  char32_t before = 0;
  int state = 0;
  for_each_code_point(text, [&](char32_t c, size_t at, size_t) {
    if (at > 0 && is_grapheme_start(before, c, state)) {
      append_cluster(text.substr(begin, at - begin), base + begin, out);
      begin = at;
    }
    before = c;
  });
  append_cluster(text.substr(begin), base + begin, out);
  return out;
}

}  // namespace regard::text

#include "regard/text/words.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "regard/text/unicode.h"
#include "regard/text/utf8.h"
#include "regard/text/visible.h"

namespace regard::text {
namespace {

// A token's bytes of the text without white space at its ends.
Span trimmed(std::string_view text, Span span) {
  const auto is_blank = [&](size_t at) { return text[at] == ' ' || (text[at] >= '\t' && text[at] <= '\r'); };
  while (span.begin < span.end && is_blank(span.begin)) ++span.begin;
  while (span.end > span.begin && is_blank(span.end - 1)) --span.end;
  return span;
}

bool is_inside_character(std::string_view text, size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
}

struct Look {
  bool punctuation = false;     // nothing else in it
  bool without_spaces = false;  // begins with a character of a script written so
};

Look look_at(std::string_view text, Span span) {
  while (is_inside_character(text, span.begin)) --span.begin;
  while (is_inside_character(text, span.end)) ++span.end;
  if (span.empty()) return {};
  const std::string_view part = text.substr(span.begin, span.end - span.begin);
  Look out{true, is_written_without_spaces(decode_valid(part, 0).value)};
  for_each_code_point(part, [&](char32_t c, size_t, size_t) {
    if (!is_punctuation(c) && !is_symbol(c)) out.punctuation = false;
  });
  return out;
}

}  // namespace

std::vector<Word> group_words(const Encoding& encoding, std::string_view text, std::string_view second) {
  for (const std::string_view each : {text, second})
    if (const auto bad = find_invalid_utf8(each))
      throw std::invalid_argument("text is not valid UTF-8 at byte " + std::to_string(*bad));
  std::vector<Word> out;
  bool joins = false;  // whether the last word can go on
  Look last;
  for (size_t i = 0; i < encoding.size(); ++i) {
    const uint8_t index = encoding.text_index[i];
    const std::string_view source = index ? second : text;
    if (encoding.offsets[i].end > source.size())
      throw std::invalid_argument("token " + std::to_string(i) + " ends at byte " +
                                  std::to_string(encoding.offsets[i].end) + " of a text of " +
                                  std::to_string(source.size()) + " bytes; it is not what was encoded");
    const Span span = trimmed(source, encoding.offsets[i]);
    const Look look = look_at(source, span);
    // The token goes on with a character that the last word has begun.
    size_t character = span.begin;
    while (is_inside_character(source, character)) --character;
    const bool splits_character = joins && !out.empty() && out.back().text_index == index && !span.empty() &&
                                  character < span.begin && out.back().bytes.end > character;
    const bool goes_on = joins && !out.empty() && out.back().text_index == index && encoding.continues[i] &&
                         !encoding.special[i] && !span.empty() && !look.punctuation && !last.punctuation &&
                         !look.without_spaces && !last.without_spaces;
    if (splits_character || goes_on) {
      Word& word = out.back();
      word.tokens.push_back(i);
      word.bytes.end = std::max(word.bytes.end, span.end);
    } else {
      Word word;
      word.tokens = {i};
      word.bytes = span;
      word.text_index = index;
      word.is_special = encoding.special[i];
      word.is_punctuation = !word.is_special && (look.punctuation || span.empty());
      out.push_back(std::move(word));
    }
    joins = !encoding.special[i] && !span.empty();
    if (!span.empty()) last = look;
  }
  for (Word& word : out) {
    const std::string_view source = word.text_index ? second : text;
    // Whole characters, also where the vocabulary has no token for one of their bytes.
    while (is_inside_character(source, word.bytes.begin)) --word.bytes.begin;
    while (is_inside_character(source, word.bytes.end)) ++word.bytes.end;
    word.text = source.substr(word.bytes.begin, word.bytes.end - word.bytes.begin);
    const size_t token = word.tokens[0];
    const Span all = encoding.offsets[token];
    if (word.is_special || all.empty()) {
      word.text = encoding.pieces[token];
    } else if (word.text.empty()) {
      word.text = visible(source.substr(all.begin, all.end - all.begin), false);
    }
  }
  return out;
}

}  // namespace regard::text

#include "regard/text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "regard/io/error.h"
#include "regard/text/utf8.h"
#include "regard/text/visible.h"

namespace regard::text {
namespace {

void check_utf8(std::string_view text) {
  if (const auto offset = find_invalid_utf8(text)) throw InvalidUtf8(*offset);
}

// Room for tokens of the text beside `added` special ones.
size_t room(const EncodeOptions& options, size_t added) {
  if (options.max_length < added)
    throw std::invalid_argument("max_length is " + std::to_string(options.max_length) +
                                ", but the special tokens alone are " + std::to_string(added));
  return options.max_length - added;
}

}  // namespace

InvalidUtf8::InvalidUtf8(size_t offset)
    : std::invalid_argument("text is not valid UTF-8 at byte " + std::to_string(offset)), offset_(offset) {}

Tokenizer::Tokenizer(TokenizerParts parts) : parts_(std::move(parts)) {
  parts_.special.resize(parts_.vocabulary.size(), 0);
}

bool Tokenizer::is_special(TokenId id) const {
  return id >= 0 && size_t(id) < parts_.special.size() && parts_.special[size_t(id)];
}

void Tokenizer::push(Encoding& out, TokenId id, Span span, bool continues) const {
  const bool is_unknown = parts_.ids.unk && id == *parts_.ids.unk;
  out.ids.push_back(id);
  out.pieces.push_back(parts_.vocabulary.piece(id));
  out.offsets.push_back(span);
  out.special.push_back(is_special(id) && !is_unknown);
  out.continues.push_back(continues);
  out.type_ids.push_back(0);
  out.text_index.push_back(0);
  out.unknown += is_unknown;
}

Encoding Tokenizer::encode_text(std::string_view text, const EncodeOptions& options) const {
  check_utf8(text);
  const bool parse_special = options.parse_special.value_or(parses_special_by_default());
  Encoding out;
  if (text.empty()) encode_plain(text, 0, parse_special, out);
  parts_.added.split(
      text, parse_special,
      [&](Span part) {
        encode_plain(text.substr(part.begin, part.end - part.begin), part.begin, parse_special, out);
      },
      [&](const AddedToken& token, Span span) { push(out, token.id, span, false); });
  return out;
}

Encoding Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  Encoding body = encode_text(text, options);
  size_t truncated = 0;
  if (options.max_length > 0)
    truncated = truncate_longest_first(
        body, nullptr, room(options, options.add_special ? added_count(parts_.around.single) : 0));
  if (options.add_special) body = assemble(parts_.around.single, body, nullptr);
  body.truncated = truncated;
  return body;
}

Encoding Tokenizer::encode_pair(std::string_view first, std::string_view second,
                                const EncodeOptions& options) const {
  Encoding a = encode_text(first, options);
  Encoding b = encode_text(second, options);
  static const Template kBare;
  const auto& items = options.add_special ? parts_.around.pair : kBare.pair;
  size_t truncated = 0;
  if (options.max_length > 0) truncated = truncate_longest_first(a, &b, room(options, added_count(items)));
  Encoding out = assemble(items, a, &b);
  out.truncated = truncated;
  return out;
}

std::string Tokenizer::forced_text(std::string_view pieces) {
  std::string out;
  std::copy_if(pieces.begin(), pieces.end(), std::back_inserter(out), [](char c) { return c != '|'; });
  return out;
}

Encoding Tokenizer::encode_pieces(std::string_view pieces, const EncodeOptions& options) const {
  check_utf8(pieces);
  Encoding body;
  size_t at = 0;  // in the text without the bars
  for (size_t begin = 0, number = 1; begin <= pieces.size(); ++number) {
    const size_t end = std::min(pieces.find('|', begin), pieces.size());
    const std::string_view piece = pieces.substr(begin, end - begin);
    if (piece.empty()) throw std::invalid_argument("piece " + std::to_string(number) + " is empty");
    const auto id = find_forced(piece, number == 1);
    if (!id || (is_special(*id) && !options.parse_special.value_or(false)))
      throw std::invalid_argument("piece " + std::to_string(number) + ", \"" + std::string(piece) +
                                  "\", is not a token of the vocabulary");
    push(body, *id, {at, at + piece.size()}, number > 1 && piece_continues(piece_of(*id)));
    at += piece.size();
    begin = end + 1;
  }
  if (options.max_length > 0) throw std::invalid_argument("max_length does not apply to forced pieces");
  return options.add_special ? assemble(parts_.around.single, body, nullptr) : body;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  StreamDecoder stream(*this, skip_special);
  std::string out;
  for (const TokenId id : ids) out += stream.push(id);
  return out + stream.finish();
}

std::string Tokenizer::display_piece(TokenId id) const {
  if (is_special(id)) return visible(piece_of(id), false);
  std::string bytes;
  append_bytes(id, true, bytes);
  return visible(bytes, true);
}

std::vector<std::string> Tokenizer::display_pieces(const Encoding& encoding, std::string_view text,
                                                   std::string_view second) const {
  std::vector<std::string> out;
  out.reserve(encoding.size());
  for (size_t i = 0; i < encoding.size(); ++i) {
    const std::string_view source = encoding.text_index[i] ? second : text;
    const Span span = encoding.offsets[i];
    if (span.end > source.size())
      throw std::invalid_argument("text has " + std::to_string(source.size()) + " bytes, but token " +
                                  std::to_string(i) + " ends at byte " + std::to_string(span.end) +
                                  "; it is not what was encoded");
    const auto inside = [&](size_t at) {
      return at < source.size() && (static_cast<unsigned char>(source[at]) & 0xC0) == 0x80;
    };
    if (encoding.special[i] || span.empty() || !(inside(span.begin) || inside(span.end))) {
      out.push_back(display_piece(encoding.ids[i]));
      continue;
    }
    // The character that an end of the token cuts: [begin, end).
    size_t begin = inside(span.begin) ? span.begin : span.end, end = begin;
    while (inside(begin)) --begin;
    do ++end;
    while (inside(end));
    const auto overlaps = [&](size_t j) {
      return encoding.text_index[j] == encoding.text_index[i] && !encoding.offsets[j].empty() &&
             encoding.offsets[j].begin < end && encoding.offsets[j].end > begin;
    };
    size_t first = i, last = i;
    while (first > 0 && overlaps(first - 1)) --first;
    while (last + 1 < encoding.size() && overlaps(last + 1)) ++last;
    size_t whole_begin = span.begin, whole_end = span.end;
    while (inside(whole_begin)) --whole_begin;
    while (inside(whole_end)) ++whole_end;
    out.push_back(visible(source.substr(whole_begin, whole_end - whole_begin), true) + " " +
                  std::to_string(i - first + 1) + "/" + std::to_string(last - first + 1));
  }
  return out;
}

std::string Tokenizer::apply_chat_template(std::span<const Message> messages,
                                           bool add_generation_prompt) const {
  if (!parts_.chat_jinja) io::fail(parts_.vocabulary.source(), "the model has no chat template");
  return ChatTemplate::recognise(*parts_.chat_jinja, parts_.vocabulary.source())
      .render(messages, add_generation_prompt);
}

}  // namespace regard::text

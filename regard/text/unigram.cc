#include "regard/text/unigram.h"

#include <algorithm>
#include <utility>

#include "regard/io/error.h"
#include "regard/text/unicode.h"
#include "regard/text/utf8.h"

namespace regard::text {
namespace {

constexpr char32_t kMark = 0x2581;
constexpr std::string_view kMarkBytes = "\xE2\x96\x81";

}  // namespace

Unigram::Unigram(TokenizerParts parts, UnigramConfig config)
    : Tokenizer(std::move(parts)), config_(std::move(config)) {
  const Vocabulary& vocabulary = parts_.vocabulary;
  if (!parts_.ids.unk) io::fail(vocabulary.source(), "the vocabulary has no token for unknown characters");
  const TokenId unknown = *parts_.ids.unk;
  if (config_.byte_fallback) {
    byte_of_.assign(vocabulary.size(), -1);
    for (int byte = 0; byte < 256; ++byte) {
      constexpr const char* kDigits = "0123456789ABCDEF";
      const std::string piece = std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + '>';
      const auto id = vocabulary.find(piece);
      if (!id)
        io::fail(vocabulary.source(), "model.byte_fallback is true, but the piece " + piece + " is missing");
      byte_ids_[size_t(byte)] = *id;
      byte_of_[size_t(*id)] = int16_t(byte);
    }
  }
  std::vector<UnigramPiece> pieces;
  pieces.reserve(config_.scores.size());
  for (size_t i = 0; i < config_.scores.size(); ++i) {
    const auto id = TokenId(i);
    if (!vocabulary.has(id) || id == unknown || vocabulary.piece(id).empty() || is_byte(id)) continue;
    pieces.push_back({vocabulary.piece(id), id, config_.scores[i], is_special(id)});
  }
  model_ = UnigramModel(pieces, unknown, config_.unknown_score, config_.single_precision);
}

AlignedText Unigram::normalize(std::string_view text, size_t base) const {
  if (config_.charsmap) return config_.charsmap->normalize(text, base);
  AlignedText out;
  for_each_code_point(text, [&](char32_t c, size_t at, size_t length) {
    const Span source{base + at, base + at + length};
    const auto found = config_.table.find(c);
    if (found == config_.table.end()) return out.append(c, source);
    for (const char32_t part : found->second) out.append(part, source);
  });
  return out;
}

AlignedText Unigram::mark_spaces(const AlignedText& text, size_t base) const {
  std::string_view bytes = text.text();
  if (config_.words_by_white_space) {
    AlignedText out;
    bool starts = true;
    Span space{base, base};
    for_each_code_point(bytes, [&](char32_t c, size_t at, size_t length) {
      const Span source = text.source(at, at + length);
      if (is_space(c)) {
        starts = true;
        space = source;
        return;
      }
      if (starts && c != kMark) out.append(kMark, space);
      starts = false;
      out.append(c, source);
    });
    return out;
  }
  size_t begin = 0, end = bytes.size();
  if (config_.strip_right)
    while (end > begin && bytes[end - 1] == ' ') --end;
  if (config_.strip_left)
    while (begin < end && bytes[begin] == ' ') ++begin;
  bytes = bytes.substr(0, end);
  AlignedText out;
  if (begin == end && !config_.keep_empty) return out;
  if (config_.prefix_space &&
      (begin == end || (bytes[begin] != ' ' && !bytes.substr(begin).starts_with(kMarkBytes))))
    out.append(kMark, {base, base});
  while (begin < end) {
    const CodePoint c = decode_valid(bytes, begin);
    const size_t after = begin + c.length;
    const bool repeats = c.value == ' ' && config_.collapse_spaces && after < end && bytes[after] == ' ';
    // Of a run of spaces the last one stays, which is the one that touches the word.
    if (!repeats) out.append(c.value == ' ' ? kMark : c.value, text.source(begin, after));
    begin = after;
  }
  return out;
}

void Unigram::encode_plain(std::string_view text, size_t base, bool parse_special, Encoding& out) const {
  const AlignedText marked = mark_spaces(normalize(text, base), base);
  const bool with_specials = parse_special && config_.specials_as_pieces;
  const std::string_view bytes = marked.text();
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t end =
        config_.split_words ? std::min(bytes.find(kMarkBytes, begin + 1), bytes.size()) : bytes.size();
    bool after_unknown = false;
    for (const UnigramToken& token : model_.best_path(bytes.substr(begin, end - begin), with_specials)) {
      Span span{begin + token.span.begin, begin + token.span.end};
      const bool marks = bytes.substr(span.begin).starts_with(kMarkBytes);
      if (marks && span.end - span.begin > kMarkBytes.size()) span.begin += kMarkBytes.size();
      const Span source = marked.source(span.begin, span.end);
      const bool is_unknown = token.id == *parts_.ids.unk;
      if (is_unknown && config_.byte_fallback) {
        push_bytes(marked, span, out);
      } else if (is_unknown && after_unknown && config_.fuse_unknown) {
        out.offsets.back().end = source.end;
      } else {
        push(out, token.id, source, !marks && span.begin > 0 && !out.empty() && !out.special.back());
      }
      after_unknown = is_unknown;
    }
    begin = end;
  }
}

void Unigram::push_bytes(const AlignedText& text, Span span, Encoding& out) const {
  const Span source = text.source(span.begin, span.end);
  // Where the text was left as it is, each token stands for its own byte.
  const bool as_it_was = source.end - source.begin == span.end - span.begin;
  for (size_t i = span.begin; i < span.end; ++i) {
    const size_t at = source.begin + (i - span.begin);
    push(out, byte_ids_[static_cast<unsigned char>(text.text()[i])], as_it_was ? Span{at, at + 1} : source,
         i > 0 && !out.empty() && !out.special.back());
  }
}

void Unigram::append_bytes(TokenId id, bool first, std::string& out) const {
  if (parts_.vocabulary.has(id) && is_byte(id)) {
    out += static_cast<char>(byte_of_[size_t(id)]);
    return;
  }
  std::string_view piece = piece_of(id);
  if (first && piece.starts_with(kMarkBytes)) piece.remove_prefix(kMarkBytes.size());
  while (!piece.empty()) {
    const size_t mark = std::min(piece.find(kMarkBytes), piece.size());
    out += piece.substr(0, mark);
    piece.remove_prefix(mark);
    if (piece.empty()) break;
    out += ' ';
    piece.remove_prefix(kMarkBytes.size());
  }
}

std::optional<TokenId> Unigram::find_forced(std::string_view piece, bool first) const {
  if (first)
    if (const auto marked = id_of(std::string(kMarkBytes) + std::string(piece))) return marked;
  return id_of(piece);
}

bool Unigram::piece_continues(std::string_view piece) const {
  return !piece.starts_with(kMarkBytes);
}

}  // namespace regard::text

#include "regard/text/wordpiece.h"

#include <utility>

#include "regard/io/error.h"
#include "regard/text/unicode.h"

namespace regard::text {
namespace {

bool is_bert_punctuation(char32_t c) {
  if (c < 0x80) return c > ' ' && c < 0x7F && !is_letter(c) && !is_number(c);
  return is_punctuation(c);
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
    text.replace(at, from.size(), to);
}

}  // namespace

WordPiece::WordPiece(TokenizerParts parts, WordPieceConfig config)
    : Tokenizer(std::move(parts)), config_(std::move(config)) {
  const Vocabulary& vocabulary = parts_.vocabulary;
  if (!parts_.ids.unk) io::fail(vocabulary.source(), "the vocabulary has no token for unknown words");
  std::vector<std::pair<std::string_view, uint32_t>> starts, insides;
  for (size_t id = 0; id < vocabulary.size(); ++id) {
    if (!vocabulary.has(TokenId(id))) continue;
    const std::string_view piece = vocabulary.piece(TokenId(id));
    if (piece.empty()) continue;
    starts.emplace_back(piece, uint32_t(id));
    if (piece.size() > config_.prefix.size() && piece.starts_with(config_.prefix))
      insides.emplace_back(piece.substr(config_.prefix.size()), uint32_t(id));
  }
  starts_ = Trie(std::move(starts));
  insides_ = Trie(std::move(insides));
}

void WordPiece::encode_plain(std::string_view text, size_t base, bool parse_special, Encoding& out) const {
  const AlignedText normalized = config_.normalizer(text, base);
  config_.normalized_added.split(
      normalized.text(), parse_special, [&](Span part) { encode_words(normalized, part, out); },
      [&](const AddedToken& token, Span span) {
        push(out, token.id, normalized.source(span.begin, span.end), false);
      });
}

void WordPiece::encode_words(const AlignedText& text, Span part, Encoding& out) const {
  const std::string_view bytes = text.text();
  size_t word = part.begin;  // start of the word that is being read
  const auto finish_word = [&](size_t end) {
    if (word < end) encode_word(text, {word, end}, out);
  };
  for (size_t at = part.begin; at < part.end;) {
    const CodePoint next = decode_valid(bytes, at);
    const size_t after = at + next.length;
    if (is_space(next.value)) {
      finish_word(at);
      word = after;
    } else if (is_bert_punctuation(next.value)) {
      finish_word(at);
      encode_word(text, {at, after}, out);
      word = after;
    }
    at = after;
  }
  finish_word(part.end);
}

void WordPiece::encode_word(const AlignedText& text, Span word, Encoding& out) const {
  const std::string_view bytes = std::string_view(text.text()).substr(word.begin, word.end - word.begin);
  size_t characters = 0;
  for (const char c : bytes) characters += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  std::vector<std::pair<TokenId, Span>> found;
  bool known = characters <= config_.max_word_characters;
  for (size_t at = 0; known && at < bytes.size();) {
    size_t longest = 0;
    TokenId id = 0;
    (at == 0 ? starts_ : insides_).prefixes(bytes.substr(at), [&](size_t length, uint32_t value) {
      longest = length;
      id = value;
    });
    known = longest > 0;
    found.emplace_back(id, Span{word.begin + at, word.begin + at + longest});
    at += longest;
  }
  if (!known) {
    push(out, *parts_.ids.unk, text.source(word.begin, word.end), false);
    return;
  }
  for (size_t i = 0; i < found.size(); ++i)
    push(out, found[i].first, text.source(found[i].second.begin, found[i].second.end), i > 0);
}

void WordPiece::append_bytes(TokenId id, bool first, std::string& out) const {
  std::string piece;
  std::string_view rest = piece_of(id);
  if (!first && rest.starts_with(config_.prefix)) {
    rest.remove_prefix(config_.prefix.size());
  } else if (!first) {
    piece.push_back(' ');
  }
  piece += rest;
  if (config_.decoder_cleanup) {
    // In this order, within one token, as the published decoder does.
    static constexpr std::pair<std::string_view, std::string_view> kRules[] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& [from, to] : kRules) replace_all(piece, from, to);
  }
  out += piece;
}

std::optional<TokenId> WordPiece::find_forced(std::string_view piece, bool first) const {
  const auto plain = id_of(piece);
  if (plain || first) return plain;
  return id_of(config_.prefix + std::string(piece));
}

bool WordPiece::piece_continues(std::string_view piece) const {
  return piece.starts_with(config_.prefix);
}

}  // namespace regard::text

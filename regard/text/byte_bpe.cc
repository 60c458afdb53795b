#include "regard/text/byte_bpe.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "regard/io/error.h"
#include "regard/text/nfc.h"
#include "regard/text/utf8.h"

namespace regard::text {
namespace {

bool is_own_symbol(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

struct Symbols {
  std::array<char32_t, 256> of_byte;
  std::array<int, 0x144> of_symbol;  // -1: no byte's

  Symbols() {
    of_symbol.fill(-1);
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      of_byte[size_t(byte)] = is_own_symbol(byte) ? char32_t(byte) : next++;
      of_symbol[of_byte[size_t(byte)]] = byte;
    }
  }
};

const Symbols& symbols() {
  static const Symbols table;
  return table;
}

bool is_ascii_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

}  // namespace

std::string byte_symbol(unsigned char byte) {
  std::string out;
  append_utf8(symbols().of_byte[byte], out);
  return out;
}

std::string spelled_bytes(std::string_view piece) {
  std::string out;
  bool is_spelled = true;
  for_each_code_point(piece, [&](char32_t c, size_t, size_t) {
    const int byte = c < symbols().of_symbol.size() ? symbols().of_symbol[c] : -1;
    is_spelled = is_spelled && byte >= 0;
    out.push_back(static_cast<char>(byte));
  });
  return is_spelled ? out : std::string(piece);
}

ByteBpe::ByteBpe(TokenizerParts parts, ByteBpeConfig config, bool has_unknown)
    : Tokenizer(std::move(parts)), config_(std::move(config)), has_unknown_(has_unknown) {
  const Vocabulary& vocabulary = parts_.vocabulary;
  bytes_.resize(vocabulary.size());
  for (size_t id = 0; id < vocabulary.size(); ++id)
    if (vocabulary.has(TokenId(id))) bytes_[id] = spelled_bytes(vocabulary.piece(TokenId(id)));
  // Added tokens are text, whatever they look like.
  for (const AddedToken& token : parts_.added.tokens()) bytes_[size_t(token.id)] = token.content;
  for (int byte = 0; byte < 256; ++byte)
    byte_ids_[size_t(byte)] = vocabulary.find(byte_symbol(static_cast<unsigned char>(byte))).value_or(-1);
}

size_t ByteBpe::missing_bytes() const {
  return size_t(std::count(byte_ids_.begin(), byte_ids_.end(), -1));
}

void ByteBpe::append_bytes(TokenId id, bool, std::string& out) const {
  piece_of(id);  // checks the id
  out += bytes_[size_t(id)];
}

void ByteBpe::encode_plain(std::string_view text, size_t base, bool, Encoding& out) const {
  if (text.size() >= UINT32_MAX)
    throw std::invalid_argument(
        "text has " + std::to_string(text.size()) +
        " bytes without a special token; byte-level BPE takes less than 4 GiB at once");
  if (config_.nfc) {
    if (const auto composed = aligned_nfc(text, base))
      return encode_bytes(
          composed->text(), [&](size_t begin, size_t end) { return composed->source(begin, end); }, out);
  }
  encode_bytes(
      text,
      [base](size_t begin, size_t end) {
        return Span{base + begin, base + end};
      },
      out);
}

template <class Source>
void ByteBpe::encode_bytes(std::string_view text, Source&& source, Encoding& out) const {
  std::vector<BpeSymbol> pieces;
  const auto add = [&](TokenId id, size_t begin, size_t end) {
    const bool apart = begin == 0 || is_ascii_space(text[begin - 1]) || is_ascii_space(text[begin]);
    push(out, id, source(begin, end), !apart);
  };
  pre_split(config_.split, text, [&](Span part) {
    const std::string_view bytes = text.substr(part.begin, part.end - part.begin);
    if (config_.ignore_merges) {
      std::string piece;
      for (const char byte : bytes) piece += byte_symbol(static_cast<unsigned char>(byte));
      if (const auto id = id_of(piece); id && !is_special(*id)) return add(*id, part.begin, part.end);
    }
    pieces.clear();
    for (const char byte : bytes) pieces.push_back({byte_ids_[static_cast<unsigned char>(byte)], 1});
    config_.merges.apply(pieces);
    size_t at = part.begin;
    bool after_unknown = false;
    for (const BpeSymbol& piece : pieces) {
      const size_t end = at + piece.length;
      if (piece.id >= 0) {
        add(piece.id, at, end);
      } else if (!has_unknown_) {
        out.dropped_bytes += piece.length;
      } else if (after_unknown && config_.fuse_unknown) {
        out.offsets.back().end = source(at, end).end;
      } else {
        add(*parts_.ids.unk, at, end);
      }
      after_unknown = piece.id < 0;
      at = end;
    }
  });
}

std::optional<TokenId> ByteBpe::find_forced(std::string_view piece, bool) const {
  if (const auto written = id_of(piece)) return written;
  std::string symbols;
  for (const char byte : piece) symbols += byte_symbol(static_cast<unsigned char>(byte));
  if (const auto plain = id_of(symbols)) return plain;
  return id_of(byte_symbol(' ') + symbols);
}

bool ByteBpe::piece_continues(std::string_view piece) const {
  const std::string bytes = spelled_bytes(piece);
  return !bytes.empty() && !is_ascii_space(bytes[0]);
}

}  // namespace regard::text

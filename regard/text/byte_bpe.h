// Byte-level BPE (GPT-2, Llama 3, Qwen2, SmolLM): every byte has a printable stand-in, pieces are made of
// those.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "regard/text/bpe_merges.h"
#include "regard/text/pre_split.h"
#include "regard/text/tokenizer.h"

namespace regard::text {

struct ByteBpeConfig {
  PreSplit split = PreSplit::gpt2;
  BpeMerges merges;            // over ids of the vocabulary
  bool ignore_merges = false;  // a piece that is a token as a whole is taken as it is
  bool nfc = false;            // composed (NFC) before the split
  bool fuse_unknown = false;   // a run of unknown bytes is one unknown token
};

// The stand-in of a byte as UTF-8: printable Latin-1 is its own, the rest are U+0100 and up in order.
std::string byte_symbol(unsigned char byte);
// The bytes that a piece spells; a piece that is not made of stand-ins is its own text.
std::string spelled_bytes(std::string_view piece);

// Bytes without a token are dropped and counted (Encoding::dropped_bytes) where the vocabulary has no unknown
// token: decode(encode(x)) is then not x. Offsets count bytes, also inside a character; with NFC, whole
// characters that changed.
class ByteBpe final : public Tokenizer {
 public:
  ByteBpe(TokenizerParts parts, ByteBpeConfig config, bool has_unknown);

  std::string_view kind() const override { return "byte-level BPE"; }
  void append_bytes(TokenId id, bool first, std::string& out) const override;
  // How many of the 256 bytes have no token.
  size_t missing_bytes() const;

 protected:
  void encode_plain(std::string_view text, size_t base, bool parse_special, Encoding& out) const override;
  std::optional<TokenId> find_forced(std::string_view piece, bool first) const override;
  bool piece_continues(std::string_view piece) const override;

 private:
  template <class Source>
  void encode_bytes(std::string_view text, Source&& source, Encoding& out) const;

  ByteBpeConfig config_;
  bool has_unknown_;
  std::array<TokenId, 256> byte_ids_;  // -1: none
  std::vector<std::string> bytes_;     // what each id spells
};

}  // namespace regard::text

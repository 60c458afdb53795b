// What a tokenizer makes of a text: ids with their pieces and the bytes of the text that each stands for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace regard::text {

using TokenId = int64_t;

// Bytes [begin, end) of a UTF-8 text. Empty where a token stands for no byte of it (added special tokens).
struct Span {
  size_t begin = 0, end = 0;
  bool empty() const { return begin == end; }
  bool operator==(const Span&) const = default;
};

struct Encoding {
  // One entry a token in each of these.
  std::vector<TokenId> ids;
  std::vector<std::string> pieces;  // as the vocabulary writes them: "##ing", "Ġthe", "▁the"
  std::vector<Span> offsets;        // into the text that text_index names; spaces in front are inside only
                                    // where the piece holds them (byte-level BPE)
  std::vector<uint8_t> special;  // 1: a special token, added or written in the text; an unknown word is none
  std::vector<uint8_t> continues;   // 1: no space (WordPiece: no word boundary) before it in the text
  std::vector<uint8_t> type_ids;    // segment ids as the model wants them
  std::vector<uint8_t> text_index;  // 0 first text, 1 second text of a pair

  size_t unknown = 0;  // tokens with the unknown id
  size_t dropped_bytes =
      0;                 // bytes of the text that the vocabulary cannot spell and that no token stands for
  size_t truncated = 0;  // tokens cut off to keep within max_length

  size_t size() const { return ids.size(); }
  bool empty() const { return ids.empty(); }
};

struct EncodeOptions {
  bool add_special = true;  // [CLS] ... [SEP], <s> ... </s>, a beginning of text, as the model wants them
  // Whether special tokens written in the text become those tokens. Default: as the model's own tokenizer
  // does (WordPiece and byte-level BPE: yes). Unigram: no, so that a text from outside cannot insert </s> or
  // <pad>.
  std::optional<bool> parse_special = std::nullopt;
  // At most so many tokens, special ones included; what is cut is counted. 0: no limit. A pair is cut as
  // "longest first".
  size_t max_length = 0;
};

// One role's id each, where the tokenizer has it.
struct SpecialIds {
  std::optional<TokenId> cls, sep, pad, unk, mask, bos, eos;
};

}  // namespace regard::text

#include "regard/train/byte_tokenizer.h"

#include <cstdint>
#include <nlohmann/json.hpp>

#include "regard/text/utf8.h"

namespace regard::train {

std::string byte_tokenizer_json() {
  // Byte-level BPE writes a byte as a character that can be seen: itself where that is printable in Latin-1,
  // else the next free one from U+0100 (GPT-2's encoder.json).
  nlohmann::json vocabulary = nlohmann::json::object();
  char32_t free = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    std::string piece;
    text::append_utf8(printable ? static_cast<char32_t>(byte) : free++, piece);
    vocabulary[piece] = byte;
  }
  const nlohmann::json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const nlohmann::json json = {
      {"version", "1.0"},
      {"added_tokens", nlohmann::json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer", byte_level},
      {"post_processor", nullptr},
      {"decoder", byte_level},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}}};
  return json.dump();
}

}  // namespace regard::train

#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace regard::testing {

// The tokenizer.json of a WordPiece of nine pieces: <s> 0, </s> 1, <pad> 2, [UNK] 3, then the letters a to e.
inline std::string letters_tokenizer() {
  using nlohmann::json;
  const json vocabulary = {{"<s>", 0}, {"</s>", 1}, {"<pad>", 2}, {"[UNK]", 3}, {"a", 4},
                           {"b", 5},   {"c", 6},    {"d", 7},     {"e", 8}};
  return json{{"version", "1.0"},
              {"added_tokens", json::array()},
              {"normalizer", nullptr},
              {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
              {"post_processor", nullptr},
              {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
              {"model",
               {{"type", "WordPiece"},
                {"unk_token", "[UNK]"},
                {"continuing_subword_prefix", "##"},
                {"max_input_chars_per_word", 100},
                {"vocab", vocabulary}}}}
      .dump();
}

}  // namespace regard::testing

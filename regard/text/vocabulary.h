// The pieces of a tokenizer by id, and back.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "regard/text/encoding.h"

namespace regard::text {

// Ids may leave gaps (files from the field do), but not so many that a file makes a table much larger than
// itself.
inline constexpr TokenId kMaxUnusedIds = 65536;

class Vocabulary {
 public:
  // `expected`: about how many pieces will come.
  explicit Vocabulary(std::string source, size_t expected = 0) : source_(std::move(source)) {
    ids_.reserve(expected);
  }

  // Throws io::Error: a negative or huge id, an id or a piece given twice. The bound on ids is checked by
  // finish().
  void add(std::string_view piece, int64_t id);
  // To be called once, after the last add().
  void finish();

  size_t size() const { return pieces_.size(); }  // largest id + 1
  bool has(TokenId id) const { return id >= 0 && size_t(id) < pieces_.size() && used_[size_t(id)]; }
  std::optional<TokenId> find(std::string_view piece) const;
  // std::invalid_argument for an id that no piece has.
  const std::string& piece(TokenId id) const;
  const std::string& source() const { return source_; }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };

  std::string source_;
  std::unordered_map<std::string, TokenId, Hash, std::equal_to<>> ids_;
  std::vector<std::string> pieces_;
  std::vector<uint8_t> used_;
};

}  // namespace regard::text

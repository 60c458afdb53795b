#include "regard/text/vocabulary.h"

#include <algorithm>
#include <stdexcept>

#include "regard/io/error.h"

namespace regard::text {

void Vocabulary::add(std::string_view piece, int64_t id) {
  // A table that could be filled this far has at most this many rows; finish() knows the final count.
  constexpr int64_t kMaxId = (int64_t{1} << 31) - 1;
  if (id < 0 || id > kMaxId)
    io::fail(source_, "token " + io::quoted(piece) + " has the id " + std::to_string(id) +
                          "; ids are whole numbers from 0 to 2147483647");
  const auto [entry, is_new] = ids_.emplace(piece, id);
  if (!is_new)
    io::fail(source_, "token " + io::quoted(piece) + " is given twice, with ids " +
                          std::to_string(entry->second) + " and " + std::to_string(id));
}

void Vocabulary::finish() {
  TokenId largest = -1;
  const std::string* owner = nullptr;
  for (const auto& [piece, id] : ids_) {
    if (id > largest) {
      largest = id;
      owner = &piece;
    }
  }
  if (largest >= static_cast<TokenId>(ids_.size()) + kMaxUnusedIds)
    io::fail(source_, "token " + io::quoted(*owner) + " has the id " + std::to_string(largest) +
                          ", but there are only " + std::to_string(ids_.size()) + " tokens; at most " +
                          std::to_string(kMaxUnusedIds) + " ids may be unused");
  pieces_.assign(size_t(largest + 1), {});
  used_.assign(size_t(largest + 1), 0);
  for (const auto& [piece, id] : ids_) {
    if (used_[size_t(id)])
      io::fail(source_, "id " + std::to_string(id) + " is given twice, to " +
                            io::quoted(std::min(piece, pieces_[size_t(id)])) + " and " +
                            io::quoted(std::max(piece, pieces_[size_t(id)])));
    used_[size_t(id)] = 1;
    pieces_[size_t(id)] = piece;
  }
}

std::optional<TokenId> Vocabulary::find(std::string_view piece) const {
  const auto found = ids_.find(piece);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

const std::string& Vocabulary::piece(TokenId id) const {
  if (!has(id))
    throw std::invalid_argument("token id " + std::to_string(id) +
                                " is not in the vocabulary, which has ids from 0 to " +
                                std::to_string(static_cast<TokenId>(size()) - 1));
  return pieces_[size_t(id)];
}

}  // namespace regard::text

// A set of byte strings that answers: which of them does this text start with?
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace regard::text {

class Trie {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  Trie() = default;
  // Keys need not be sorted; they must differ and not be empty. Values below kNone.
  explicit Trie(std::vector<std::pair<std::string_view, uint32_t>> entries);

  // Calls visit(length, value) for each key that `text` starts with, shortest first.
  template <class Visit>
  void prefixes(std::string_view text, Visit&& visit) const {
    uint32_t node = 0;
    for (size_t length = 0; length < text.size(); ++length) {
      node = child(node, static_cast<unsigned char>(text[length]));
      if (node == kNone) return;
      if (nodes_[node].value != kNone) visit(length + 1, nodes_[node].value);
    }
  }

 private:
  // The children of a node stand side by side, sorted by label.
  struct Node {
    uint32_t first_child = 0;
    uint32_t value = kNone;
    uint16_t children = 0;
    uint8_t label = 0;
  };
  uint32_t child(uint32_t node, unsigned char label) const;

  std::vector<Node> nodes_;
  std::array<uint32_t, 256> root_{};  // the root's children by label; every search starts there
};

}  // namespace regard::text

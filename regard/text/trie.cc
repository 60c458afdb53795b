#include "regard/text/trie.h"

#include <algorithm>

namespace regard::text {

Trie::Trie(std::vector<std::pair<std::string_view, uint32_t>> entries) {
  std::sort(entries.begin(), entries.end());
  // Breadth first: the keys below a node are a range of the sorted list.
  struct Range {
    size_t begin, end, depth;
  };
  std::vector<Range> ranges{{0, entries.size(), 0}};
  nodes_.emplace_back();
  for (size_t node = 0; node < nodes_.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    if (begin < end && entries[begin].first.size() == depth) nodes_[node].value = entries[begin++].second;
    nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const char label = entries[begin].first[depth];
      size_t stop = begin + 1;
      while (stop < end && entries[stop].first[depth] == label) ++stop;
      nodes_.push_back({0, kNone, 0, static_cast<uint8_t>(label)});
      ranges.push_back({begin, stop, depth + 1});
      ++nodes_[node].children;
      begin = stop;
    }
  }
  nodes_.shrink_to_fit();
  root_.fill(kNone);
  for (uint32_t i = 0; i < nodes_[0].children; ++i)
    root_[nodes_[nodes_[0].first_child + i].label] = nodes_[0].first_child + i;
}

uint32_t Trie::child(uint32_t node, unsigned char label) const {
  if (nodes_.empty()) return kNone;
  if (node == 0) return root_[label];
  // string_view compares bytes as unsigned, so siblings are sorted by label.
  const auto first = nodes_.begin() + nodes_[node].first_child;
  const auto last = first + nodes_[node].children;
  const auto found =
      std::lower_bound(first, last, label, [](const Node& a, unsigned char b) { return a.label < b; });
  if (found == last || found->label != label) return kNone;
  return static_cast<uint32_t>(found - nodes_.begin());
}

}  // namespace regard::text

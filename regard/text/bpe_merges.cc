#include "regard/text/bpe_merges.h"

#include <queue>

namespace regard::text {
namespace {

uint64_t key(TokenId left, TokenId right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint64_t>(right);
}

constexpr uint32_t kNone = UINT32_MAX;

struct Candidate {
  uint32_t rank;
  uint32_t position;  // of the left symbol
  uint32_t left, right, joined;

  bool operator>(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : position > other.position;
  }
};

}  // namespace

bool BpeMerges::add(TokenId left, TokenId right, TokenId joined) {
  return merges_
      .emplace(key(left, right), Merge{static_cast<uint32_t>(merges_.size()), static_cast<uint32_t>(joined)})
      .second;
}

const BpeMerges::Merge* BpeMerges::find(TokenId left, TokenId right) const {
  if (left < 0 || right < 0) return nullptr;
  const auto found = merges_.find(key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BpeMerges::apply(std::vector<BpeSymbol>& symbols) const {
  if (symbols.size() < 2) return;
  // A list of the living symbols over their first positions. Positions fit in 32 bits: a piece of 4 GiB is
  // refused by the caller.
  const auto count = static_cast<uint32_t>(symbols.size());
  std::vector<uint32_t> next(count), before(count);
  for (uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1 < count ? i + 1 : kNone;
    before[i] = i > 0 ? i - 1 : kNone;
  }
  std::vector<Candidate> storage;
  storage.reserve(count);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue(std::greater<>(),
                                                                               std::move(storage));
  const auto consider = [&](uint32_t left) {
    if (left == kNone || next[left] == kNone) return;
    const BpeSymbol& a = symbols[left];
    const BpeSymbol& b = symbols[next[left]];
    if (const Merge* merge = find(a.id, b.id))
      queue.push({merge->rank, left, uint32_t(a.id), uint32_t(b.id), merge->joined});
  };
  for (uint32_t i = 0; i + 1 < count; ++i) consider(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    const uint32_t at = best.position;
    const uint32_t after = next[at];
    // Stale where either side has been joined meanwhile; a dead symbol has length 0.
    if (symbols[at].length == 0 || after == kNone || symbols[at].id != TokenId(best.left) ||
        symbols[after].id != TokenId(best.right))
      continue;
    symbols[at].id = best.joined;
    symbols[at].length += symbols[after].length;
    symbols[after].length = 0;
    next[at] = next[after];
    if (next[at] != kNone) before[next[at]] = at;
    consider(before[at]);
    consider(at);
  }
  std::erase_if(symbols, [](const BpeSymbol& symbol) { return symbol.length == 0; });
}

}  // namespace regard::text

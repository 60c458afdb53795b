#include "regard/text/unigram_model.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "regard/text/utf8.h"

namespace regard::text {

UnigramModel::UnigramModel(const std::vector<UnigramPiece>& pieces, TokenId unknown, double unknown_score,
                           bool single_precision)
    : unknown_(unknown), unknown_score_(unknown_score), single_precision_(single_precision) {
  std::vector<std::pair<std::string_view, uint32_t>> entries;
  entries.reserve(pieces.size());
  for (const UnigramPiece& piece : pieces) {
    entries.emplace_back(piece.piece, static_cast<uint32_t>(entries_.size()));
    entries_.push_back({piece.id, piece.score, piece.special});
  }
  trie_ = Trie(std::move(entries));
}

std::vector<UnigramToken> UnigramModel::best_path(std::string_view text, bool with_specials) const {
  return single_precision_ ? search<float>(text, with_specials) : search<double>(text, with_specials);
}

template <class Real>
std::vector<UnigramToken> UnigramModel::search(std::string_view text, bool with_specials) const {
  // The best way to reach each byte: its sum, its last token and where that began.
  struct Step {
    Real sum = -std::numeric_limits<Real>::infinity();
    size_t begin = 0;
    TokenId id = 0;
    bool reached = false;
  };
  std::vector<Step> steps(text.size() + 1);
  steps[0] = {0, 0, 0, true};
  for (size_t at = 0; at < text.size();) {
    const size_t length = decode_valid(text, at).length;
    // Every character can be unknown, so every place between characters is reached.
    const Real sum = steps[at].sum;
    const auto offer = [&](size_t end, TokenId id, double score) {
      const Real candidate = sum + static_cast<Real>(score);
      Step& step = steps[end];
      if (!step.reached || candidate > step.sum) step = {candidate, at, id, true};
    };
    trie_.prefixes(text.substr(at), [&](size_t bytes, uint32_t index) {
      const Entry& entry = entries_[index];
      if (!entry.special || with_specials) offer(at + bytes, entry.id, entry.score);
    });
    offer(at + length, unknown_, unknown_score_);
    at += length;
  }
  std::vector<UnigramToken> out;
  for (size_t end = text.size(); end > 0; end = steps[end].begin)
    out.push_back({steps[end].id, {steps[end].begin, end}});
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace regard::text

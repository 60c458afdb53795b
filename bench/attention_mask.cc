#include "bench/attention_mask.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace regard::bench {

using attention::Align;
using attention::Mask;

std::vector<int64_t> document_starts(const AttentionCase& c) {
  std::vector<int64_t> starts;
  for (int64_t d = 0; d <= c.documents; ++d) starts.push_back(c.keys * d / c.documents);
  return starts;
}

CaseMask::CaseMask(const AttentionCase& c) : queries_(c.queries), keys_(c.keys) {
  constexpr Align kEnd = Align::bottom_right;
  known_to_torch_ = c.mask == "none" || c.mask == "causal";
  if (c.mask == "causal") mask_ = Mask::causal(kEnd);
  if (c.mask == "window") mask_ = Mask::window(c.window - 1, 0, kEnd);
  if (c.mask == "stride") mask_ = Mask::causal(kEnd) & Mask::stride(c.period, kEnd);
  if (c.mask == "longformer") mask_ = attention::longformer(256, 32, kEnd);
  if (c.mask == "neighbourhood") {
    const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(c.queries))));
    mask_ = Mask::neighbourhood({.height = side, .width = side, .kernel_y = 13, .kernel_x = 13});
  }
  if (c.mask == "bigbird") {
    blocks_ = attention::bigbird({}, 1, c.queries);
    mask_ = blocks_->mask;
  }
  if (c.mask == "segments" || c.mask == "documents") {
    mask_ = Mask::segments();
    const std::vector<int64_t> starts = document_starts(c);
    for (int32_t d = 0; d < c.documents; ++d)
      segments_.insert(segments_.end(), static_cast<size_t>(starts[d + 1] - starts[d]), d);
  }
}

void CaseMask::add_to(attention::Operands& operands) const {
  if (!segments_.empty()) {
    operands.query_segments = operands.key_segments = {segments_.data(), {1, 1, 1, keys_}};
  }
  if (blocks_) operands.block_mask = blocks_->view();
}

attention::BoundMask CaseMask::bound() const {
  attention::Operands operands;
  add_to(operands);
  return {
      mask_, queries_, keys_, {{}, {}, operands.query_segments, operands.key_segments, operands.block_mask}};
}

at::Tensor CaseMask::visible() const {
  if (known_to_torch_) return {};
  at::Tensor visible = at::zeros({queries_, keys_}, at::kBool);
  auto* to = static_cast<uint8_t*>(visible.mutable_data_ptr());
  const attention::BoundMask mask = bound();
  for (int64_t i = 0; i < queries_; ++i) {
    for (int64_t key = 0; key < keys_; key += 64) {
      const int64_t columns = std::min<int64_t>(64, keys_ - key);
      uint64_t word = 0;
      mask.bits(0, 0, i, 1, key, columns, &word);
      for (int64_t c = 0; c < columns; ++c) to[i * keys_ + key + c] = word >> c & 1;
    }
  }
  return visible;
}

double CaseMask::visible_pairs() const {
  if (mask_.sees_everything()) return static_cast<double>(queries_) * static_cast<double>(keys_);
  double pairs = 0;
  const attention::BoundMask mask = bound();
  for (int64_t i = 0; i < queries_; ++i) {
    int64_t from = 0;
    while (true) {
      const kernel::Span span = mask.next_span(0, 0, i, 1, from);
      if (span.begin >= span.end) break;
      for (int64_t key = span.begin; key < span.end; key += 64) {
        uint64_t word = 0;
        mask.bits(0, 0, i, 1, key, std::min<int64_t>(64, span.end - key), &word);
        pairs += std::popcount(word);
      }
      from = span.end;
    }
  }
  return pairs;
}

double CaseMask::live_tiles(int64_t rows) const {
  const attention::TileCount tiles = count_tiles(bound(), 0, 0, rows, 64);
  return tiles.all == 0 ? 0.0 : static_cast<double>(tiles.live) / static_cast<double>(tiles.all);
}

}  // namespace regard::bench

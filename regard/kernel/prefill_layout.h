#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "regard/kernel/forward.h"
#include "regard/kernel/round_up.h"
#include "regard/kernel/top_keys.h"

// How the prefill kernel lays out its scratch: sizes that hold for every target (panels of at most 32
// columns, tiles of at most 12 rows), so that a plan does not depend on the machine.
namespace regard::kernel {

constexpr int64_t kMaxCols = 32;
constexpr int64_t kMaxLanes = 16;
constexpr int64_t kKeyChunk =
    256;  // keys whose weighted values are summed before they are added to the row's sum:
          // keeps the rounding error of long rows near that of a short one

constexpr int64_t kWeightsChunk = 96;  // rows for which weights_tile() packs a panel of keys once

struct PrefillLayout {
  // Panels of all key/value heads are packed first and shared by all workers, or each worker packs the head
  // that it works on. The second keeps them in its cache and needs less memory; it must have heads enough to
  // go round.
  bool shared;
  int64_t heads_packed;                          // how many heads' panels there are
  int64_t strip_rows;                            // rows of scratch of a strip
  int64_t block_keys;                            // keys of a block
  int64_t kept_blocks;                           // of a strip, whose weights stay until all are done: 1, or
                                                 // all where they are observed then
  int64_t keys;                                  // Lk rounded up
  int64_t key_floats, value_floats, flag_words;  // panels of one head
  int64_t query_floats, score_floats, out_floats, row_floats, staging_floats,
      live_bytes;         // scratch of a worker: scores, live and one row's maximum for each kept block
  int64_t candidates;     // a row, for the best keys
  int64_t hit_bytes;      // of a block's panels, likewise
  int64_t segment_rows;   // rows of a head whose column sums are taken together, by one task
  int64_t segments;       // of a head; 0: rows may be shared out freely
  int64_t column_floats;  // partial column sums of all segments
  int64_t observe_bytes;  // of a worker

  PrefillLayout(const Forward& p, const ForwardTiling& tiling, int workers) {
    const int64_t heads = p.k.size[0] * p.k.size[1];
    const int64_t dk = p.k.size[3];
    const int64_t dv = round_up(p.v.size[3], kMaxCols);
    shared = workers > 1 && heads < 4 * int64_t{workers};
    heads_packed = shared ? heads : workers;
    strip_rows = round_up(std::max<int64_t>(tiling.query_rows, 1), 12);
    keys = round_up(p.k.size[2], 64);
    block_keys = std::min(round_up(std::max<int64_t>(tiling.key_block, 1), kKeyChunk), keys);
    key_floats = round_up(keys * dk, 16);
    value_floats = keys * dv;
    flag_words = round_up(keys / 64, 8);
    query_floats = strip_rows * round_up(dk, kMaxCols);
    // Dropout changes weights: those are made again.
    const bool kept = p.observe.wants_weights() && !p.dropout && block_keys > 0;
    kept_blocks = kept ? (p.k.size[2] + block_keys - 1) / block_keys : 1;
    score_floats = strip_rows * block_keys;
    out_floats = strip_rows * dv;
    row_floats = strip_rows * kMaxLanes;
    staging_floats = kMaxCols * round_up(dk, 16);
    live_bytes = round_up(strip_rows / 6 * block_keys / 16 * 4, 64);
    candidates = p.observe.wants_top() ? candidate_capacity(p.observe.top_keys.size[3]) : 0;
    hit_bytes = p.observe.wants_top() ? round_up(block_keys / 16 * 4, 64) : 0;
    // What several rows add to is one task's: the sums then have an order.
    segments = 0;
    segment_rows = p.q.size[2];
    if (p.observe.column_sums || p.observe.block_mean) {
      const int64_t unit = std::max<int64_t>(p.observe.block_rows, 1);
      const int64_t query_heads = std::max<int64_t>(p.q.size[0] * p.q.size[1], 1);
      const int64_t wanted = std::clamp<int64_t>(32 / query_heads, 1, 8);
      const int64_t rows = std::max<int64_t>(p.q.size[2], 1);
      segment_rows = round_up(round_up((rows + wanted - 1) / wanted, 48), unit);
      segments = (p.q.size[2] + segment_rows - 1) / segment_rows;
    }
    column_floats = p.observe.column_sums ? p.q.size[0] * p.q.size[1] * segments * keys : 0;
    observe_bytes = p.observe.any()
                        ? row_floats * (5 * 4 + 8) + round_up(strip_rows * candidates, 4) * 16 + hit_bytes
                        : 0;
  }

  static constexpr int64_t kRangeBytes = 64;  // of a block's range of panels

  size_t head_bytes() const { return static_cast<size_t>((key_floats + value_floats) * 4 + flag_words * 8); }
  size_t worker_bytes() const {
    return static_cast<size_t>((query_floats + out_floats + 4 * row_floats + staging_floats) * 4 +
                               kept_blocks * (score_floats * 4 + row_floats * 4 + live_bytes + kRangeBytes) +
                               observe_bytes);
  }
  size_t bytes(int workers) const {
    return static_cast<size_t>(column_floats) * 4 + static_cast<size_t>(heads_packed) * head_bytes() +
           static_cast<size_t>(workers) * worker_bytes();
  }
};

// Hands out consecutive pieces of scratch.
class Carver {
 public:
  explicit Carver(std::byte* at) : at_(at) {}
  template <class T>
  T* take(int64_t count) {
    T* piece = reinterpret_cast<T*>(at_);
    at_ += static_cast<size_t>(count) * sizeof(T);
    return piece;
  }

  std::byte* end() const { return at_; }

 private:
  std::byte* at_;
};

}  // namespace regard::kernel

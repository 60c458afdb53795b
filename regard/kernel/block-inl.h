// Backward of a block: up to kBlock query rows of one head against up to kBlock keys. The block's weights P
// and the gradient dS of its logits are made tile by tile and then multiplied with what was packed:
//   dV += P^T dO,  dK += dS^T Q,  dQ += dS K.
#if defined(REGARD_KERNEL_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNEL_BLOCK_INL_H_
#undef REGARD_KERNEL_BLOCK_INL_H_
#else
#define REGARD_KERNEL_BLOCK_INL_H_
#endif

#include "regard/kernel/backward_layout.h"
#include "regard/kernel/dropout-inl.h"
#include "regard/kernel/logits-inl.h"
#include "regard/kernel/pack-inl.h"
#include "regard/kernel/plain_pair.h"
#include "regard/kernel/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

// What a worker packs of a key chunk, once for all query heads of the group.
struct KeyChunk {
  int64_t begin, end;   // keys
  int64_t panel_rows;   // of key_rows and the sums, from one panel to the next
  float* keys;          // [chunk / kCols][Dk][kCols]
  float* key_rows;      // [Dk / kCols][panel_rows][kCols]
  float* values;        // [chunk / kCols][Dv][kCols]
  uint64_t* nonfinite;  // a bit per key
  float* grad_k;        // [Dk / kCols][panel_rows][kCols], not yet scaled; nullptr: not wanted
  float* grad_v;        // [Dv / kCols][panel_rows][kCols]
};

// What it packs of a query head.
struct QueryHead {
  int64_t batch, head;
  int64_t panel_rows;
  float* q;             // [Dk / kCols][panel_rows][kCols], times LogitRule::query_factor
  float* grad_out;      // [Dv / kCols][panel_rows][kCols]
  uint64_t* nonfinite;  // a bit per row with a NaN or infinity in q or grad_out
  float* lse;           // in units of log2; +infinity for a row that sees nothing, so that its weights are 0
  float* lse_rest;      // what the rounding of lse left out
  float* delta;         // grad_out . out - grad_lse
  float* grad_q;        // [Dk / kCols][panel_rows][kCols], not yet scaled; nullptr: not wanted
  double* slope_sum;    // nullptr: not wanted
};

struct Block {
  int64_t row, rows;
  int64_t key, keys;
  bool full;  // every pair is visible
};

// The weights of a block and their gradients, row-major with kBlock columns.
struct BlockTiles {
  float* weights;
  float* grads;
};

constexpr int64_t kRowTiles = kBlock / kRows;
constexpr int64_t kPanels = kBlock / kCols;

// Columns [begin, end) of a tile row, or rows of a tile column, that anything is alive in.
struct Extent {
  int64_t begin = kBlock;
  int64_t end = 0;
};

// products: [kRows][kCols] with kBlock columns between rows, all features.
HWY_INLINE void multiply_all(D d, const float* HWY_RESTRICT a, int64_t a_rows,
                             const float* HWY_RESTRICT panel, int64_t features,
                             float* HWY_RESTRICT products) {
  Accumulators acc;
  multiply_features(d, a, a_rows, panel, 0, features, acc);
  store<kBlock>(d, acc, products);
  for (int64_t f = kFeatureChunk; f < features; f += kFeatureChunk) {
    multiply_features(d, a, a_rows, panel, f, features, acc);
    add_to<kBlock>(d, acc, products);
  }
}

// Logits become weights 2^(logit - lse).
HWY_INLINE void weigh(D d, const float* HWY_RESTRICT lse, const float* HWY_RESTRICT rest,
                      float* HWY_RESTRICT tile) {
  constexpr int64_t kStep = kVecs == 2 ? 2 : 1;
  for (int64_t row = 0; row < kRows; row += kStep) {
    Vec x[kStep * kVecs];
#pragma GCC unroll 16
    for (int64_t i = 0; i < kStep * kVecs; ++i) {
      const int64_t r = row + i / kVecs;
      const Vec logit = hn::Load(d, tile + r * kBlock + i % kVecs * kLanes);
      // In two parts: rounding the LSE once more would cost gradients a digit.
      x[i] = hn::Sub(hn::Sub(logit, hn::Set(d, lse[r])), hn::Set(d, rest[r]));
    }
    exp2(d, x);
#pragma GCC unroll 16
    for (int64_t i = 0; i < kStep * kVecs; ++i)
      hn::Store(x[i], d, tile + (row + i / kVecs) * kBlock + i % kVecs * kLanes);
  }
}

// grads holds grad_out . v and becomes weights * (grads - delta).
HWY_INLINE void grade(D d, const float* HWY_RESTRICT delta, const float* HWY_RESTRICT weights,
                      float* HWY_RESTRICT grads) {
#pragma GCC unroll 12
  for (int64_t r = 0; r < kRows; ++r) {
    const Vec x = hn::Set(d, delta[r]);
#pragma GCC unroll 4
    for (int64_t n = 0; n < kCols; n += kLanes) {
      float* at = grads + r * kBlock + n;
      hn::Store(hn::Mul(hn::Load(d, weights + r * kBlock + n), hn::Sub(hn::Load(d, at), x)), d, at);
    }
  }
}

// The same where some weights were dropped, and those kept were multiplied by keep_scale: of those the
// weights take part in dV.
HWY_INLINE void grade_dropped(D d, const float* HWY_RESTRICT delta, const uint64_t* kept, float keep_scale,
                              float* HWY_RESTRICT weights, float* HWY_RESTRICT grads) {
  const Vec scale = hn::Set(d, keep_scale);
  for (int64_t r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int64_t n = 0; n < kCols; n += kLanes) {
      float* weight_at = weights + r * kBlock + n;
      float* grad_at = grads + r * kBlock + n;
      const Vec weight = hn::Load(d, weight_at);
      const Vec kept_weight = hn::IfThenElseZero(visible(d, kept[r] >> n), hn::Mul(weight, scale));
      hn::Store(kept_weight, d, weight_at);
      hn::Store(hn::NegMulAdd(weight, hn::Set(d, delta[r]), hn::Mul(kept_weight, hn::Load(d, grad_at))), d,
                grad_at);
    }
}

HWY_INLINE void clear_tile(D d, float* tile) {
#pragma GCC unroll 12
  for (int64_t r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int64_t n = 0; n < kCols; n += kLanes) hn::Store(hn::Zero(d), d, tile + r * kBlock + n);
}

// Adds a tile's gradients of logits to grad_bias. What the bias repeats is summed over the tile first: a
// running sum of single elements would lose digits.
HWY_INLINE void add_grad_bias(const View<float>& bias, int64_t batch, int64_t head, int64_t row, int64_t rows,
                              int64_t key, int64_t columns, const float* grads) {
  HWY_ALIGN float sums[kCols];
  const bool repeats_rows = bias.stride[2] == 0;
  for (int64_t r = 0; r < rows; r += repeats_rows ? rows : 1) {
    for (int64_t c = 0; c < columns; ++c) sums[c] = grads[r * kBlock + c];
    if (repeats_rows)
      for (int64_t i = 1; i < rows; ++i)
        for (int64_t c = 0; c < columns; ++c) sums[c] += grads[i * kBlock + c];
    float* to = bias.at(batch, head, row + r) + key * bias.stride[3];
    if (bias.stride[3] == 0) {
      float sum = 0.0F;
      for (int64_t c = 0; c < columns; ++c) sum += sums[c];
      *to += sum;
    } else {
      for (int64_t c = 0; c < columns; ++c) to[c * bias.stride[3]] += sums[c];
    }
  }
}

// A tile with everything that a Spec can say. weights and grads point at the tile in its block; rows: how
// many exist.
inline HWY_NOINLINE void finish_tile(const Backward& problem, const LogitRule& rule, const QueryHead& q,
                                     int64_t row, int64_t rows, int64_t key, LiveTile live,
                                     const uint64_t* kept_words, float* HWY_RESTRICT weights,
                                     float* HWY_RESTRICT grads) {
  const D d;
  const Forward& p = problem.forward;
  HWY_ALIGN float logits[kTile];
  HWY_ALIGN float slopes[kTile];
  uint64_t words[kRows];
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t n = 0; n < kCols; n += kLanes)
      hn::Store(hn::Load(d, weights + r * kBlock + n), d, logits + r * kCols + n);
  visible_words(p, q.batch, q.head, row, rows, key, live, words);
  finish_logits(rule, p, q.batch, q.head, row, rows, key, words, logits, slopes);
  const Vec keep_scale = hn::Set(d, p.dropout ? p.dropout.scale() : 1.0F);
  double slope_sum = 0.0;
  for (int64_t r = 0; r < kRows; ++r) {
    const Vec lse = hn::Set(d, q.lse[row + r]);
    const Vec rest = hn::Set(d, q.lse_rest[row + r]);
    const Vec delta = hn::Set(d, q.delta[row + r]);
    for (int64_t n = 0; n < kCols; n += kLanes) {
      // Selected, not multiplied by 0: nothing of a masked pair may get through.
      const auto seen = visible(d, words[r] >> n);
      const Vec weight =
          hn::IfThenElseZero(seen, exp2(d, hn::Sub(hn::Sub(hn::Load(d, logits + r * kCols + n), lse), rest)));
      Vec kept_weight = weight;
      if (p.dropout)
        kept_weight = hn::IfThenElseZero(visible(d, kept_words[r] >> n), hn::Mul(weight, keep_scale));
      float* at = grads + r * kBlock + n;
      const Vec grad = hn::IfThenElseZero(
          seen, p.dropout ? hn::NegMulAdd(weight, delta, hn::Mul(kept_weight, hn::Load(d, at)))
                          : hn::Mul(weight, hn::Sub(hn::Load(d, at), delta)));
      hn::Store(kept_weight, d, weights + r * kBlock + n);
      hn::Store(grad, d, at);
    }
  }
  const int64_t columns = HWY_MIN(kCols, p.k.size[2] - key);
  if (problem.grad_bias) add_grad_bias(problem.grad_bias, q.batch, q.head, row, rows, key, columns, grads);
  for (int64_t r = 0; r < rows; ++r) {
    float* row_grads = grads + r * kBlock;
    if (q.slope_sum != nullptr)
      for (int64_t c = 0; c < columns; ++c)
        slope_sum -= static_cast<double>(row_grads[c]) *
                     static_cast<double>(std::abs(row + r + p.alibi_offset - key - c));
    if (rule.bends)
      for (int64_t n = 0; n < kCols; n += kLanes)
        hn::Store(hn::IfThenElseZero(visible(d, words[r] >> n), hn::Mul(hn::Load(d, row_grads + n),
                                                                        hn::Load(d, slopes + r * kCols + n))),
                  d, row_grads + n);
  }
  if (q.slope_sum != nullptr) *q.slope_sum += slope_sum;
}

// P and dS of the block. across[t]: the columns of row tile t that are alive; down[c]: the rows of panel c.
HWY_INLINE void make_tiles(const Backward& problem, const LogitRule& rule, const KeyChunk& chunk,
                           const QueryHead& q, const Block& block, const BlockTiles& tiles,
                           Extent (&across)[kRowTiles], Extent (&down)[kPanels]) {
  const D d;
  const Forward& p = problem.forward;
  const int64_t dk = p.q.size[3];
  const int64_t dv = p.v.size[3];
  const int64_t panels = (block.keys + kCols - 1) / kCols;
  const bool simple = rule.plain && !problem.grad_bias && q.slope_sum == nullptr;
  LiveTile live[kRowTiles][kPanels];
  uint64_t kept_of_rows[kBlock][2];
  for (int64_t r = 0; r < block.rows; r += kRows) {
    if (!block.full) {
      live_panels(p, q.batch, q.head, block.row + r, HWY_MIN(kRows, block.rows - r), block.key,
                  block.key + block.keys, kCols, live[r / kRows]);
      continue;
    }
    for (int64_t panel = 0; panel < panels; ++panel)
      live[r / kRows][panel] = {0, static_cast<uint8_t>(HWY_MIN(kCols, block.keys - panel * kCols)), true, 0};
  }
  if (p.dropout)
    for (int64_t r = 0; r < block.rows; ++r)
      kept_words(p.dropout, q.batch, q.head, block.row + r, block.key, kept_of_rows[r]);
  for (int64_t panel = 0; panel < panels; ++panel) {
    const int64_t key = block.key + panel * kCols;
    const float* keys = chunk.keys + (key - chunk.begin) * dk;
    const float* values = chunk.values + (key - chunk.begin) * dv;
    for (int64_t r = 0; r < block.rows; r += kRows) {
      const int64_t row = block.row + r;
      float* weights = tiles.weights + r * kBlock + panel * kCols;
      float* grads = tiles.grads + r * kBlock + panel * kCols;
      const LiveTile at = live[r / kRows][panel];
      if (at.begin == at.end) {
        clear_tile(d, weights);
        clear_tile(d, grads);
        continue;
      }
      Extent& columns = across[r / kRows];
      columns.begin = HWY_MIN(columns.begin, panel * kCols + at.begin);
      columns.end = HWY_MAX(columns.end, panel * kCols + at.end);
      down[panel].begin = HWY_MIN(down[panel].begin, r);
      down[panel].end = HWY_MAX(down[panel].end, r + kRows);
      multiply_all(d, q.q + row * kCols, q.panel_rows, keys, dk, weights);
      if (simple && at.full && at.end - at.begin == kCols) {
        weigh(d, q.lse + row, q.lse_rest + row, weights);
        multiply_all(d, q.grad_out + row * kCols, q.panel_rows, values, dv, grads);
        if (!p.dropout) {
          grade(d, q.delta + row, weights, grads);
          continue;
        }
        uint64_t kept_row[kRows];
        for (int64_t i = 0; i < kRows; ++i)  // of rows that do not exist weights are 0
          kept_row[i] =
              kept_of_rows[HWY_MIN(r + i, block.rows - 1)][panel * kCols / 64] >> (panel * kCols % 64);
        grade_dropped(d, q.delta + row, kept_row, p.dropout.scale(), weights, grads);
        continue;
      }
      multiply_all(d, q.grad_out + row * kCols, q.panel_rows, values, dv, grads);
      uint64_t kept_row[kRows] = {};
      const int64_t rows = HWY_MIN(kRows, block.rows - r);
      if (p.dropout)
        for (int64_t i = 0; i < rows; ++i)
          kept_row[i] = kept_of_rows[r + i][panel * kCols / 64] >> (panel * kCols % 64);
      finish_tile(problem, rule, q, row, rows, key, at, kept_row, weights, grads);
    }
  }
}

// to[keys][features] += tiles^T rows: dV and dK. tiles: the block's weights or their gradients; from: packed
// rows of q or grad_out, the block's first.
HWY_INLINE void add_transposed(const float* HWY_RESTRICT tiles, const Block& block,
                               const Extent (&down)[kPanels], const float* HWY_RESTRICT from,
                               int64_t from_rows, int64_t features, float* HWY_RESTRICT to, int64_t to_rows) {
  const D d;
  for (int64_t key = 0; key < block.keys; key += kRows) {
    // A tile of kRows keys may lie across two panels.
    Extent rows = down[key / kCols];
    const int64_t last = HWY_MIN(key + kRows, block.keys) - 1;
    rows.begin = HWY_MIN(rows.begin, down[last / kCols].begin);
    rows.end = HWY_MAX(rows.end, down[last / kCols].end);
    if (rows.begin >= rows.end) continue;
    const float* a = tiles + rows.begin * kBlock + key;
    for (int64_t f = 0; f < features; f += kCols) {
      Accumulators acc;
      zero(d, acc);
      multiply_add<1, kBlock>(d, a, from + f * from_rows + rows.begin * kCols, rows.end - rows.begin, acc);
      add_to(d, acc, to + f * to_rows + key * kCols);
    }
  }
}

// dQ += dS K.
HWY_INLINE void add_grad_q(const float* HWY_RESTRICT grads, const Block& block,
                           const Extent (&across)[kRowTiles], const KeyChunk& chunk, int64_t features,
                           const QueryHead& q) {
  const D d;
  const int64_t first = block.key - chunk.begin;
  for (int64_t r = 0; r < block.rows; r += kRows) {
    const Extent columns = across[r / kRows];
    if (columns.begin >= columns.end) continue;
    for (int64_t f = 0; f < features; f += kCols) {
      Accumulators acc;
      zero(d, acc);
      multiply_add<kBlock, 1>(d, grads + r * kBlock + columns.begin,
                              chunk.key_rows + f * chunk.panel_rows + (first + columns.begin) * kCols,
                              columns.end - columns.begin, acc);
      add_to(d, acc, q.grad_q + f * q.panel_rows + (block.row + r) * kCols);
    }
  }
}

inline void add_block(const Backward& problem, const LogitRule& rule, const KeyChunk& chunk,
                      const QueryHead& q, const Block& block, const BlockTiles& tiles) {
  const Forward& p = problem.forward;
  const int64_t dk = p.q.size[3];
  const int64_t dv = p.v.size[3];
  const int64_t first = block.key - chunk.begin;
  if (HWY_UNLIKELY((p.mask || p.bias) && (any_flag(q.nonfinite, block.row, block.row + block.rows) ||
                                          any_flag(chunk.nonfinite, first, first + block.keys)))) {
    // 0 * NaN is NaN: the products below cannot leave a masked pair out.
    const auto sums = [&](float* data, int64_t at, int64_t rows) HWY_ATTR {
      return PanelSums{data == nullptr ? nullptr : data + at * kCols, rows, kCols};
    };
    return add_plain_pair(
        problem, {q.batch, q.head, block.row, block.rows, block.key, block.keys, q.delta + block.row,
                  static_cast<double>(rule.query_factor), sums(q.grad_q, block.row, q.panel_rows),
                  sums(chunk.grad_k, first, chunk.panel_rows), sums(chunk.grad_v, first, chunk.panel_rows),
                  q.slope_sum});
  }
  Extent across[kRowTiles];
  Extent down[kPanels];
  make_tiles(problem, rule, chunk, q, block, tiles, across, down);
  if (chunk.grad_v != nullptr)
    add_transposed(tiles.weights, block, down, q.grad_out + block.row * kCols, q.panel_rows, dv,
                   chunk.grad_v + first * kCols, chunk.panel_rows);
  if (chunk.grad_k != nullptr)
    add_transposed(tiles.grads, block, down, q.q + block.row * kCols, q.panel_rows, dk,
                   chunk.grad_k + first * kCols, chunk.panel_rows);
  if (q.grad_q != nullptr) add_grad_q(tiles.grads, block, across, chunk, dk, q);
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle guard

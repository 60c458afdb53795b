#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "regard/kernel/dropout.h"
#include "regard/kernel/observation.h"
#include "regard/kernel/pages.h"
#include "regard/kernel/parallel.h"
#include "regard/kernel/score_tile.h"
#include "regard/kernel/tile_mask.h"
#include "regard/kernel/view.h"

// Softmax attention, forward: out = softmax(mask(bias + softcap(scale * q k^T))) v, one row at a time as seen
// from outside, in register tiles inside. Callers are expected to have checked shapes (attention/ does).
namespace regard::kernel {

// One problem. Query head h reads key/value head h / (Hq / Hkv). Any strides; zero strides repeat inputs.
struct Forward {
  ConstAnyView q;  // [B, Hq, Lq, Dk]
  ConstAnyView k;  // [B, Hkv, Lk, Dk], the type of q
  ConstAnyView v;  // [B, Hkv, Lk, Dv], the type of q
  // Keys and values in pages, of a type of their own: k and v then say sizes only (Lk: the longest entry),
  // and a row sees no key outside its entry's positions. Not for the backward.
  Pages pages;
  AnyView out;  // [B, Hq, Lq, Dv], f32 or the type of q; a row that sees no key becomes 0; data == nullptr:
                // not wanted, and v is not read
  View<float> lse;  // [B, Hq, Lq, 1] natural log of the sum of exp(logit), the sink included; -inf for an
                    // empty row. data == nullptr: not wanted
  float scale = 1.0F;
  float softcap = 0.0F;  // c > 0: logit = c tanh(logit / c); 0: none
  ScoreTile score;       // after the cap, before the bias
  View<const float>
      bias;  // [B, Hq, Lq, Lk], zero strides broadcast; added after the cap; data == nullptr: none
  View<const float> slopes;  // [B, Hq, 1, 1] ALiBi: logit -= slope * |i + alibi_offset - j|
  int64_t alibi_offset = 0;  // Lk - Lq when rows are aligned to the end of the keys; pages: what is added to
                             // their length - Lq
  View<const float> sinks;   // [B, Hq, 1, 1] one more logit in the denominator, without a value
  Dropout dropout;           // of the weights, after the softmax; lse does not know it
  TileMask mask;
  Observation observe;  // prefill only; out and lse do not depend on it
};

// How a problem is cut: a function of the problem alone, never of the number of threads, so that bits do not
// depend on it. See attention::Plan for the choice.
struct ForwardTiling {
  enum class Kind : uint8_t {
    prefill,  // packed keys, register tiles of several query rows
    decode    // few query rows: split over keys, the query heads of a group packed
  };
  Kind kind = Kind::prefill;
  int64_t query_rows = 12;   // rows of a task's register tile strip
  int64_t key_block = 4096;  // keys whose raw scores of a strip are kept at once (they must fit in L2)
  int64_t split_keys = 0;    // decode: keys per task
};

// Chooses the tiling for a problem.
ForwardTiling choose_forward_tiling(const Forward& problem);

// Bytes of scratch that forward() needs for a problem, a tiling and a number of workers.
size_t forward_workspace(const Forward& problem, const ForwardTiling& tiling, int workers);

// Runs. Allocates nothing; workspace must hold forward_workspace() bytes, aligned to 64.
void forward(const Forward& problem, const ForwardTiling& tiling, std::span<std::byte> workspace,
             Parallel& parallel);

// Attention weights exp(logit - lse) of rows [row, row + rows) and keys [key, key + keys) of one batch entry
// and head, recomputed from q, k and the row's lse by the kernels that made them. weights: [rows, keys]
// row-major, masked 0. With as_logits: the logits instead, masked -inf (lse is not read).
void weights_tile(const Forward& problem, View<const float> lse, int64_t batch, int64_t head, int64_t row,
                  int64_t rows, int64_t key, int64_t keys, float* weights, bool as_logits = false);

}  // namespace regard::kernel

#pragma once

#include "regard/kernel/backward.h"
#include "regard/kernel/prefill_layout.h"

// How the backward kernel shares out its work and its scratch; sizes hold for every target.
namespace regard::kernel {

// Keys and query rows of a block of weights: whole tiles of every target (6 x 16 and 12 x 32).
constexpr int64_t kBlock = 96;

struct BackwardLayout {
  // Tasks that write the same element of grad_bias must be one task: heads (or batch entries) that share a
  // bias form a unit, worked off in order.
  int64_t batch_units, head_units;  // units along batch and key/value heads
  int64_t chunks;                   // of keys; a task is a unit and a chunk
  int64_t chunk_keys;
  int64_t rows;                  // Lq rounded up to whole blocks
  int64_t dk, dv;                // features rounded up to whole panels
  int64_t key_words, row_words;  // flags: a bit per key of a chunk, per row
  int64_t key_blocks;            // of a chunk
  int64_t block_words;           // a bit per block of query rows
  int64_t query_heads;           // of all batch entries
  bool partial_q;                // grad_q comes in parts, one a chunk

  BackwardLayout(const Backward& p, const BackwardTiling& tiling) {
    const Forward& f = p.forward;
    const bool bias = static_cast<bool>(p.grad_bias);
    batch_units = bias && p.grad_bias.stride[0] == 0 ? 1 : f.k.size[0];
    head_units = bias && p.grad_bias.stride[1] == 0 ? 1 : f.k.size[1];
    const int64_t keys = f.k.size[2];
    chunk_keys = std::min(tiling.chunk_keys, round_up(std::max<int64_t>(keys, 1), kBlock));
    chunks = std::max<int64_t>((keys + chunk_keys - 1) / chunk_keys, 1);
    rows = round_up(f.q.size[2], kBlock);
    dk = round_up(f.q.size[3], kMaxCols);
    dv = round_up(f.v.size[3], kMaxCols);
    key_words = round_up(chunk_keys / 64 + 1, 8);
    row_words = round_up(rows / 64 + 1, 8);
    key_blocks = chunk_keys / kBlock;
    block_words = (rows / tiling.block_rows + 63) / 64;
    query_heads = f.q.size[0] * f.q.size[1];
    partial_q = chunks > 1 && p.grad_q;
  }

  int64_t query_floats() const { return rows * dk; }
  // Doubles: of each query head the gradient of its sink, and of its slope by each chunk.
  size_t sums_bytes() const { return static_cast<size_t>(round_up(query_heads * (chunks + 1), 8)) * 8; }
  size_t partial_bytes() const {
    return partial_q ? static_cast<size_t>(query_heads * chunks * query_floats()) * 4 : 0;
  }
  size_t worker_bytes() const {
    const int64_t floats = chunk_keys * (2 * dk + dv)      // keys both ways round, values
                           + rows * (dk + dv)              // queries, grad_out
                           + chunk_keys * (dk + dv)        // sums of grad_k and grad_v
                           + (partial_q ? 0 : rows * dk)   // sum of grad_q
                           + 3 * rows                      // lse in two parts, delta
                           + 2 * kBlock * kBlock           // weights and their gradient
                           + kMaxCols * std::max(dk, dv);  // staging
    const int64_t words = key_words + row_words + 2 * round_up(key_blocks * block_words, 8);
    return static_cast<size_t>(floats * 4 + words * 8 + round_up(key_blocks * 4, 64));
  }
  size_t bytes(int workers) const {
    return sums_bytes() + partial_bytes() + static_cast<size_t>(workers) * worker_bytes();
  }
};

}  // namespace regard::kernel

#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "regard/kernel/types.h"

namespace regard::bench {

// One row of the table: a problem, given to our kernels and to a peer.
struct AttentionCase {
  std::string op = "forward";  // forward, backward, forward_backward, decode, observe, custom, mla
  // torch: scaled_dot_product_attention; unfused: product, softmax, product in libtorch, with what is
  // observed taken from the weights; self: ours without a look at the weights; naive: MLA's other path
  std::string peer = "torch";
  // none, causal (square); and what libtorch gets as a bool mask: window (causal too), segments (packed
  // documents) and documents (the same by varlen_attention), stride (causal too), bigbird, longformer,
  // neighbourhood (13 x 13 of a square grid)
  std::string mask = "none";
  kernel::DType dtype = kernel::DType::f32;
  kernel::DType peer_dtype = kernel::DType::f32;
  int64_t batch = 1;
  int64_t heads = 8;
  int64_t kv_heads = 8;
  int64_t queries = 0;
  int64_t keys = 0;
  int64_t key_features = 64;
  int64_t value_features = 64;
  int threads = 1;
  int64_t window = 0;     // keys that a row sees
  int64_t documents = 0;  // segments and documents
  int64_t period = 0;     // stride
  // decode and mla: keys and values in pages of this type, "f32", "bf16", "f16" or "i8"; empty: in rows
  std::string pages;
  bool ragged = false;  // decode in pages: entry b of the batch has (b + 1) / B of the keys
  double dropout = 0;
  int64_t top_k = 0;  // observe: the best keys beside entropy and column sums
};

// quick: the rows that show each kernel once, under a minute on a quiet machine.
std::vector<AttentionCase> attention_cases(bool quick);

// Runs ours and the peer alternately for about `seconds` (three rounds at least unless they take long) and
// takes the best of each: processor time of the thread with one thread, wall time with more. Columns: op,
// form, mask, dtype, B, Hq, Hkv, Lq, Lk, Dk, Dv, threads, ours_ms, peer, peer_ms, ratio (peer / ours), gflops
// (of pairs that are visible, 2.5 times as many backward), peak_share, extra_bytes (our scratch), live_tiles
// (share of the square's tiles that are computed), window, documents, period, pages, ragged, dropout,
// observed, peer_dtype, difference (largest, between the two outputs), isa, peak_gflops and read_gbytes of
// the moment, kv_gbytes (keys and values over our time). intensity: operations over the bytes of inputs and
// results. peer_command: a shell command that gets the case as JSON (case_to_json) on standard input and
// prints an object with its own time as "ours_ms", as `regard bench attention --case - --json` does; it takes
// the peer's place. Throws std::runtime_error when it fails or prints something else.
nlohmann::ordered_json run_attention_case(const AttentionCase& c, double seconds,
                                          const std::string& peer_command = "");

// Appends the columns dtype, B, Hq, Hkv, Lq, Lk, Dk, Dv and threads.
void add_sizes(const AttentionCase& c, nlohmann::ordered_json& columns);

// The columns that make a case: op, mask, dtype, B, Hq, Hkv, Lq, Lk, Dk, Dv, threads, window, documents,
// period, pages, ragged, dropout, top_k.
nlohmann::ordered_json case_to_json(const AttentionCase& c);
// Columns that are absent keep their default. Throws std::invalid_argument on unknown columns and on values
// that mean nothing.
AttentionCase case_from_json(const nlohmann::json& columns);

}  // namespace regard::bench

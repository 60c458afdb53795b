#pragma once

#include <cstdint>
#include <vector>

#include "regard/attention/plan.h"
#include "regard/attention/spec.h"
#include "regard/kernel/parallel.h"

// The calls that most users need. Each makes a plan, takes scratch and runs it.
namespace regard::attention {

// Fills operands.out (and operands.lse, if given). Throws std::invalid_argument on a malformed call.
void attention(const Spec& spec, const Operands& operands,
               kernel::Parallel& parallel = kernel::default_parallel());

// What attention(q, k, v) returns: contiguous float32.
struct Result {
  std::vector<float> out;  // [B, Hq, Lq, Dv]
  std::vector<float> lse;  // [B, Hq, Lq]
};

// softmax(q k^T / sqrt(Dk)) v with everything at its default. The smallest call of the library.
Result attention(ConstAnyView q, ConstAnyView k, ConstAnyView v, const Spec& spec = {},
                 kernel::Parallel& parallel = kernel::default_parallel());

// Any tile of attention weights, recomputed from q, k and lse: rows [row, row + rows) and keys [key, key +
// keys) of one batch entry and query head, row-major, masked pairs 0. O(rows * keys) memory. lse as
// attention() returned it.
std::vector<float> weights(const Spec& spec, const Operands& operands, View<const float> lse, int64_t batch,
                           int64_t head, int64_t row, int64_t rows, int64_t key, int64_t keys);

// The same tile of logits (after scale, softcap and bias); masked pairs are -inf.
std::vector<float> logits(const Spec& spec, const Operands& operands, int64_t batch, int64_t head,
                          int64_t row, int64_t rows, int64_t key, int64_t keys);

}  // namespace regard::attention

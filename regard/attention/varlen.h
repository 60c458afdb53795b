#pragma once

#include <cstdint>
#include <span>

#include "regard/attention/backward.h"
#include "regard/attention/spec.h"
#include "regard/kernel/parallel.h"

// Attention over documents of any lengths that lie one after the other, without padding.
namespace regard::attention {

// Document d has queries [query_starts[d], query_starts[d + 1]) and keys likewise ("cu_seqlens"): n + 1
// numbers for n documents, the first 0, none below the one before it, the last the number of all rows or
// keys. Documents may be empty on either side.
struct Documents {
  std::span<const int64_t> query_starts;
  std::span<const int64_t> key_starts;
};

// Fills operands.out (and operands.lse, if given). q: [1, Hq, all queries, Dk], k: [1, Hkv, all keys, Dk],
// and so on. Each document is a problem of its own: masks, ALiBi and dropout count inside it, and its number
// is dropout's batch entry, so that the results are those of one call a document (document d with
// dropout_first_batch + d), bit for bit, for any number of workers. Documents run side by side, long ones
// alone with all workers. Masks that need data, and a bias, have no meaning here and are refused. Throws
// std::invalid_argument on a malformed call.
void varlen_attention(const Spec& spec, const Operands& operands, const Documents& documents,
                      kernel::Parallel& parallel = kernel::default_parallel());

// As backward(), for the same documents. The gradients of slopes and sinks are sums over documents.
void varlen_backward(const Spec& spec, const Operands& operands, const Documents& documents,
                     const Arriving& arriving, const Gradients& gradients,
                     kernel::Parallel& parallel = kernel::default_parallel());

}  // namespace regard::attention

#pragma once

#include <cstdint>
#include <vector>

#include "regard/attention/spec.h"
#include "regard/kernel/parallel.h"

// What an attention call did, without its L x L map: the kernel takes every statistic while a strip of
// weights is at hand and throws the strip away.
namespace regard::attention {

// What to observe; what is not asked for is not computed.
struct Observe {
  bool entropy = false;         // also sink_mass, where there are sinks
  bool row_max = false;         //
  bool distance = false;        //
  bool column_sums = false;     //
  int64_t top_k = 0;            // keys a row
  int64_t block_rows = 0;       // block maps: queries and keys a block, both above 0
  int64_t block_keys = 0;       //
  std::vector<int64_t> rows{};  // rows whose weights are wanted whole, ascending

  bool operator==(const Observe& other) const = default;
};

// Row-major. A weight is exp(logit - lse), before dropout: with sinks, a row's weights sum to 1 - sink_mass.
struct Observation {
  std::vector<float> entropy;    // [B, Hq, Lq] nats, -sum p ln p over the keys; 0 for an empty row
  std::vector<float> sink_mass;  // [B, Hq, Lq] weight that the sink took; empty without sinks
  std::vector<float> row_max;    // [B, Hq, Lq] largest logit; -inf for an empty row
  std::vector<float> distance;   // [B, Hq, Lq] sum p |position(i) - j|, positions as Spec::alibi_align says
  std::vector<float> head_distance;  // [B, Hq] its mean over the rows that see something
  std::vector<float> column_sums;    // [B, Hq, Lk] weight that a key received, summed over the queries
  std::vector<int64_t> top_keys;     // [B, Hq, Lq, top_k] largest weight first, ties: lowest key first;
                                     // -1 where the row sees fewer keys
  std::vector<float> top_weights;    // [B, Hq, Lq, top_k] 0 where the key is -1
  std::vector<float> block_mean;   // [B, Hq, ceil(Lq / block_rows), ceil(Lk / block_keys)] over all pairs of
                                   // the block, masked ones counting 0
  std::vector<float> block_max;    // same shape: largest weight of the block
  std::vector<float> row_weights;  // [B, Hq, rows, Lk]
};

// attention() that also says what it saw, in the same pass: operands.out and operands.lse are filled if
// given, with the very bits that attention() gives; v may be absent when out is. Bits do not depend on the
// number of workers. Memory beyond the results is O(Lq + Lk). Throws std::invalid_argument like attention(),
// and on sizes in `what` that mean nothing.
Observation observe(const Observe& what, const Spec& spec, const Operands& operands,
                    kernel::Parallel& parallel = kernel::default_parallel());

}  // namespace regard::attention

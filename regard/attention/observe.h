#pragma once

#include <cstdint>
#include <vector>

#include "regard/attention/spec.h"
#include "regard/kernel/parallel.h"

// What an attention call did, without its L x L map: every statistic is taken from tiles of logits that are
// recomputed from q, k and LSE and thrown away. Memory beyond the result is O(Lk) a worker.
namespace regard::attention {

// What to observe; what is not asked for is not computed.
struct Observe {
  bool entropy = false;      // also sink_mass, where there are sinks
  bool row_max = false;      //
  bool column_sums = false;  //
  int64_t top_k = 0;         // keys a row
  int64_t block_rows = 0;    // block maps: queries and keys a block, both above 0
  int64_t block_keys = 0;    //

  bool operator==(const Observe& other) const = default;
};

// Row-major. A weight is exp(logit - lse): with sinks, a row's weights sum to 1 - sink_mass.
struct Observation {
  std::vector<float> entropy;      // [B, Hq, Lq] nats, -sum p ln p over the keys; 0 for an empty row
  std::vector<float> sink_mass;    // [B, Hq, Lq] weight that the sink took; empty without sinks
  std::vector<float> row_max;      // [B, Hq, Lq] largest logit; -inf for an empty row
  std::vector<float> column_sums;  // [B, Hq, Lk] weight that a key received, summed over the queries
  std::vector<int64_t> top_keys;   // [B, Hq, Lq, top_k] largest weight first, ties: lowest key first;
                                   // -1 where the row sees fewer keys
  std::vector<float> top_weights;  // [B, Hq, Lq, top_k] 0 where the key is -1
  std::vector<float> block_mean;   // [B, Hq, ceil(Lq / block_rows), ceil(Lk / block_keys)] over all pairs of
                                   // the block, masked ones counting 0
  std::vector<float> block_max;    // same shape: largest weight of the block
};

// q, k and the options of a call and the lse that attention() returned for it, [B, Hq, Lq, 1]; v and out are
// not needed. Bits do not depend on the number of workers. Throws std::invalid_argument like check_inputs(),
// and on sizes in `what` that mean nothing.
Observation observe(const Observe& what, const Spec& spec, const Operands& operands, View<const float> lse,
                    kernel::Parallel& parallel = kernel::default_parallel());

}  // namespace regard::attention

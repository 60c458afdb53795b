#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "bench/attention_bench.h"
#include "regard/attention/bound_mask.h"
#include "regard/attention/patterns.h"
#include "regard/attention/spec.h"

namespace regard::bench {

// The mask of a case with its data, and the same said to libtorch.
class CaseMask {
 public:
  explicit CaseMask(const AttentionCase& c);

  const attention::Mask& mask() const { return mask_; }
  void add_to(attention::Operands& operands) const;

  // bool [Lq, Lk], true: may attend. Undefined where libtorch needs none (none, causal).
  at::Tensor visible() const;

  // Pairs of query and key that are visible, in one head.
  double visible_pairs() const;

  // Share of the square's tiles of rows x 64 that have a visible pair.
  double live_tiles(int64_t rows) const;

 private:
  attention::BoundMask bound() const;

  int64_t queries_, keys_;
  bool known_to_torch_;
  attention::Mask mask_;
  std::vector<int32_t> segments_;
  std::optional<attention::BlockPattern> blocks_;
};

// Starts of the documents of masks segments and documents: as equal as they can be.
std::vector<int64_t> document_starts(const AttentionCase& c);

}  // namespace regard::bench

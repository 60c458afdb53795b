#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "regard/attention/bound_mask.h"
#include "regard/attention/spec.h"
#include "regard/kernel/forward.h"

namespace regard::attention {

// How a call will be computed: kernel, tiles, order of combination and the reason. A function of the problem
// (spec, shapes, strides) alone: the number of threads only sizes scratch. Immutable; printable.
class Plan {
 public:
  // Checks everything once; throws std::invalid_argument. Only shapes, strides and types of the operands are
  // read (and which optional ones exist), so a plan serves any later operands of the same form.
  Plan(const Spec& spec, const Operands& operands);

  // Bytes of scratch for run() with this many workers.
  size_t workspace_bytes(int workers) const;

  // Computes out (and lse, if given). Checks and allocates nothing. The operands must have the planned form,
  // but their memory may lie elsewhere, with other strides along batch, head and position, and the number of
  // keys may be anything up to the planned one: a decoder plans once for its longest context and keeps Lk as
  // a run-time argument. Lengths beyond Lk are cut there. workspace is aligned to 64 bytes and holds
  // workspace_bytes(parallel.workers()).
  void run(const Operands& operands, std::span<std::byte> workspace, kernel::Parallel& parallel) const;

  const Spec& spec() const { return spec_; }
  const kernel::ForwardTiling& tiling() const { return tiling_; }
  // Tiles of tiling().query_rows rows by 64 keys, of one batch entry and head: those that are computed (at
  // most, where the mask depends on data), and all of the square.
  TileCount live_tiles() const;
  // What --verbose shows, one fact a line: problem, kernel and instruction set, tiles, scratch, live tiles
  // (an upper bound where the mask depends on data), reason.
  std::string to_string() const;

 private:
  Spec spec_;
  Operands form_;       // sizes, strides and types; the data is never read
  int64_t period_ = 0;  // of the stride whose residue classes run apart; 0: the call runs as one
  kernel::ForwardTiling tiling_;
  std::string reason_;
};

}  // namespace regard::attention

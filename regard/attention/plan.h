#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

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
  // but their memory may lie elsewhere; workspace is aligned to 64 bytes and holds
  // workspace_bytes(parallel.workers()).
  void run(const Operands& operands, std::span<std::byte> workspace, kernel::Parallel& parallel) const;

  const Spec& spec() const { return spec_; }
  std::string to_string() const;  // what --verbose shows: kernel, target, tiles, scratch, live tiles, reason

 private:
  Spec spec_;
  float scale_ = 1.0F;
  kernel::ForwardTiling tiling_;
  std::string reason_;
  kernel::Forward shape_;
};

}  // namespace regard::attention

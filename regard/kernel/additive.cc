#include "regard/kernel/additive.h"

#include <stdexcept>
#include <string>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "regard/kernel/additive.cc"
#include "regard/kernel/hwy_config.h"

#include <hwy/foreach_target.h>

#include "regard/kernel/additive-inl.h"
#include "regard/kernel/prefill-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

void AdditiveForward(const Additive& problem, std::byte* workspace, Parallel& parallel) {
  const Forward& p = problem.forward;
  const AdditiveLayout layout(problem, parallel.workers());
  auto* vectors = reinterpret_cast<float*>(workspace);
  pack_vectors(problem, layout.vector_floats, LogitRule(p).query_factor, vectors);
  with_type(p.q.dtype, [&](auto element) HWY_ATTR {
    const AdditiveScores<decltype(element)> scores{2 * p.k.size[3], p.k.size[3], vectors,
                                                   layout.vector_floats, p.q.size[1]};
    run_prefill(p, layout.strips, scores, layout.tiling,
                workspace + static_cast<size_t>(layout.vectors(p)) * 4, parallel);
  });
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "regard/kernel/dispatch.h"

namespace regard::kernel {

HWY_EXPORT(AdditiveForward);

size_t additive_workspace(const Additive& problem, int workers) {
  return AdditiveLayout(problem, workers).bytes(problem.forward, workers);
}

void additive(const Additive& problem, std::span<std::byte> workspace, Parallel& parallel) {
  const size_t needed = additive_workspace(problem, parallel.workers());
  if (workspace.size() < needed)
    throw std::invalid_argument("additive was given " + std::to_string(workspace.size()) +
                                " bytes of workspace; it needs " + std::to_string(needed));
  REGARD_DISPATCH(AdditiveForward)(problem, workspace.data(), parallel);
}

}  // namespace regard::kernel

#endif  // HWY_ONCE

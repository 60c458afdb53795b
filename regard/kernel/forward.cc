#include "regard/kernel/forward.h"

#include <stdexcept>
#include <string>

#include "regard/kernel/prefill.h"
#include "regard/kernel/prefill_layout.h"

namespace regard::kernel {

ForwardTiling choose_forward_tiling(const Forward&) {
  return {};
}

size_t forward_workspace(const Forward& problem, const ForwardTiling& tiling, int workers) {
  return PrefillLayout(problem, tiling, workers).bytes(workers);
}

void forward(const Forward& problem, const ForwardTiling& tiling, std::span<std::byte> workspace,
             Parallel& parallel) {
  const size_t needed = forward_workspace(problem, tiling, parallel.workers());
  if (workspace.size() < needed)
    throw std::invalid_argument("forward was given " + std::to_string(workspace.size()) +
                                " bytes of workspace; it needs " + std::to_string(needed));
  prefill(problem, tiling, workspace.data(), parallel);
}

}  // namespace regard::kernel

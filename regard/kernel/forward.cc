#include "regard/kernel/forward.h"

#include <stdexcept>
#include <string>

#include "regard/kernel/decode_layout.h"
#include "regard/kernel/kernels.h"
#include "regard/kernel/prefill_layout.h"

namespace regard::kernel {
namespace {

// Up to so many query rows per key/value head, or queries of any number of heads, which leave most of a
// register tile of one head empty, reading keys in place beats packing them into panels first
// (docs/performance.md).
constexpr int64_t kDecodeRows = 16;
constexpr int64_t kDecodeQueries = 4;

bool decodable(const Forward& p) {
  return !p.dropout && (p.pages || (p.k.stride[3] == 1 && p.v.stride[3] == 1));
}

}  // namespace

ForwardTiling choose_forward_tiling(const Forward& p) {
  ForwardTiling tiling;
  const int64_t kv_heads = p.k.size[1];
  const int64_t rows = kv_heads > 0 ? p.q.size[1] / kv_heads * p.q.size[2] : 0;
  if (decodable(p) && (rows <= kDecodeRows || p.q.size[2] <= kDecodeQueries)) {
    tiling.kind = ForwardTiling::Kind::decode;
    tiling.split_keys = rows <= kDecodeRows ? 512 : 256;
  }
  return tiling;
}

size_t forward_workspace(const Forward& problem, const ForwardTiling& tiling, int workers) {
  return tiling.kind == ForwardTiling::Kind::decode ? DecodeLayout(problem, tiling).bytes(workers)
                                                    : PrefillLayout(problem, tiling, workers).bytes(workers);
}

void forward(const Forward& problem, const ForwardTiling& tiling, std::span<std::byte> workspace,
             Parallel& parallel) {
  const size_t needed = forward_workspace(problem, tiling, parallel.workers());
  if (workspace.size() < needed)
    throw std::invalid_argument("forward was given " + std::to_string(workspace.size()) +
                                " bytes of workspace; it needs " + std::to_string(needed));
  if (problem.pages) check_pages(problem);
  if (tiling.kind == ForwardTiling::Kind::prefill)
    return prefill(problem, tiling, workspace.data(), parallel);
  if (!decodable(problem))
    throw std::invalid_argument(problem.dropout
                                    ? "the decode kernel knows no dropout"
                                    : "the decode kernel needs k and v with feature stride 1, not " +
                                          std::to_string(problem.k.stride[3]) + " and " +
                                          std::to_string(problem.v.stride[3]));
  decode(problem, tiling, workspace.data(), parallel);
}

}  // namespace regard::kernel

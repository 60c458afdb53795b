#include "regard/attention/attention.h"

#include <stdexcept>

#include "regard/attention/lower.h"
#include "regard/attention/scratch.h"

namespace regard::attention {
namespace {

void check_range(const char* name, int64_t first, int64_t count, int64_t size) {
  if (first < 0 || count < 0 || first > size || count > size - first) {
    throw std::invalid_argument("attention: " + std::string(name) + " [" + std::to_string(first) + ", " +
                                std::to_string(first) + " + " + std::to_string(count) +
                                ") were asked for; allowed: within [0, " + std::to_string(size) + ")");
  }
}

}  // namespace

std::vector<float> tile(const kernel::Forward& problem, const Operands& operands, View<const float> lse,
                        const TileRange& range, bool as_logits) {
  const kernel::Extents& q = operands.q.size;
  check_range("batch entries", range.batch, 1, q[0]);
  check_range("heads", range.head, 1, q[1]);
  check_range("rows", range.row, range.rows, q[2]);
  check_range("keys", range.key, range.keys, operands.k.size[2]);
  if (!as_logits) check_lse(operands, lse);
  std::vector<float> result(element_count("the tile", {1, 1, range.rows, range.keys}));
  if (result.empty()) return result;
  kernel::weights_tile(problem, lse, range.batch, range.head, range.row, range.rows, range.key, range.keys,
                       result.data(), as_logits);
  return result;
}

void attention(const Spec& spec, const Operands& operands, kernel::Parallel& parallel) {
  const Plan plan(spec, operands);
  check_data(operands);
  const Scratch scratch(plan.workspace_bytes(parallel.workers()));
  plan.run(operands, scratch.bytes(), parallel);
}

Result attention(ConstAnyView q, ConstAnyView k, ConstAnyView v, const Spec& spec,
                 kernel::Parallel& parallel) {
  Operands operands;
  operands.q = q;
  operands.k = k;
  operands.v = v;
  check_inputs(spec, operands);
  const kernel::Extents out_size{q.size[0], q.size[1], q.size[2], v.size[3]};
  const kernel::Extents lse_size{q.size[0], q.size[1], q.size[2], 1};
  Result result;
  const int64_t out_count = element_count("out", out_size);
  result.lse.resize(element_count("lse", lse_size));
  result.out.resize(out_count);
  operands.out = View<float>(result.out.data(), out_size);
  operands.lse = View<float>(result.lse.data(), lse_size);
  attention(spec, operands, parallel);
  return result;
}

std::vector<float> weights(const Spec& spec, const Operands& operands, View<const float> lse, int64_t batch,
                           int64_t head, int64_t row, int64_t rows, int64_t key, int64_t keys) {
  check_inputs(spec, operands);
  const BoundMask mask = bind_mask(spec, operands);
  return tile(lower(spec, operands, mask), operands, lse, {batch, head, row, rows, key, keys}, false);
}

std::vector<float> logits(const Spec& spec, const Operands& operands, int64_t batch, int64_t head,
                          int64_t row, int64_t rows, int64_t key, int64_t keys) {
  check_inputs(spec, operands);
  const BoundMask mask = bind_mask(spec, operands);
  return tile(lower(spec, operands, mask), operands, {}, {batch, head, row, rows, key, keys}, true);
}

}  // namespace regard::attention

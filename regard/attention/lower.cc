#include "regard/attention/lower.h"

#include <cmath>

namespace regard::attention {

double effective_scale(const Spec& spec, const Operands& operands) {
  if (spec.scale) return *spec.scale;
  const int64_t size = operands.q.size[3];
  return size == 0 ? 1.0 : 1.0 / std::sqrt(static_cast<double>(size));
}

uint32_t dropout_threshold(double probability) {
  return static_cast<uint32_t>(std::lround(probability * 65536));
}

BoundMask bind_mask(const Spec& spec, const Operands& operands) {
  return {spec.mask,
          operands.q.size[2],
          operands.k.size[2],
          {operands.dense_mask, operands.key_lengths, operands.query_segments, operands.key_segments,
           operands.block_mask}};
}

BoundMask bind_form(const Spec& spec, const Operands& form) {
  return {spec.mask, form.q.size[2], form.k.size[2]};
}

kernel::Forward lower(const Spec& spec, const Operands& operands, const BoundMask& mask) {
  const kernel::Extents& q = operands.q.size;
  const int64_t keys = operands.k.size[2];
  kernel::Forward problem;
  problem.q = operands.q;
  problem.k = operands.k;
  problem.v = operands.v;
  problem.out = operands.out;
  problem.lse = operands.lse;
  problem.scale = static_cast<float>(effective_scale(spec, operands));
  problem.softcap = spec.softcap;
  if (operands.bias) problem.bias = broadcast(operands.bias, {q[0], q[1], q[2], keys});
  if (operands.slopes) problem.slopes = broadcast(operands.slopes, {q[0], q[1], 1, 1});
  if (operands.sinks) problem.sinks = broadcast(operands.sinks, {q[0], q[1], 1, 1});
  problem.alibi_offset = spec.alibi_align == Align::bottom_right ? keys - q[2] : 0;
  if (spec.dropout > 0) {
    problem.dropout = {dropout_threshold(spec.dropout), operands.dropout_seed, operands.dropout_offset,
                       operands.dropout_first_batch};
  }
  problem.mask = mask.tile_mask();
  return problem;
}

kernel::Backward lower_backward(const Spec& spec, const Operands& operands, const BoundMask& mask,
                                const Arriving& arriving, const Gradients& gradients) {
  const kernel::Extents& q = operands.q.size;
  const kernel::Extents heads{q[0], q[1], 1, 1};
  kernel::Backward problem;
  problem.forward = lower(spec, operands, mask);
  problem.grad_out = arriving.out;
  problem.grad_lse = arriving.lse;
  problem.grad_q = gradients.q;
  problem.grad_k = gradients.k;
  problem.grad_v = gradients.v;
  if (gradients.bias) problem.grad_bias = broadcast(gradients.bias, {q[0], q[1], q[2], operands.k.size[2]});
  if (gradients.slopes) problem.grad_slopes = broadcast(gradients.slopes, heads);
  if (gradients.sinks) problem.grad_sinks = broadcast(gradients.sinks, heads);
  return problem;
}

}  // namespace regard::attention

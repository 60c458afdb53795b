#include "regard/attention/observe.h"

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "regard/attention/attention.h"
#include "regard/attention/lower.h"
#include "regard/attention/residue.h"
#include "regard/attention/scratch.h"

namespace regard::attention {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

[[noreturn]] void refuse(const std::string& sentence) {
  throw std::invalid_argument("observe: " + sentence);
}

void check_observe(const Observe& what, const kernel::Forward& problem) {
  if (what.top_k < 0 || what.top_k > problem.k.size[2]) {
    refuse("top_k is " + std::to_string(what.top_k) +
           "; allowed: 0 to Lk = " + std::to_string(problem.k.size[2]));
  }
  if (what.block_rows < 0 || what.block_keys < 0 || (what.block_rows > 0) != (what.block_keys > 0)) {
    refuse("(block_rows, block_keys) = (" + std::to_string(what.block_rows) + ", " +
           std::to_string(what.block_keys) + "); allowed: both above 0, or both 0 for no map");
  }
  for (size_t n = 0; n < what.rows.size(); ++n) {
    if (what.rows[n] < 0 || what.rows[n] >= problem.q.size[2] ||
        (n > 0 && what.rows[n] <= what.rows[n - 1])) {
      refuse("rows[" + std::to_string(n) + "] is " + std::to_string(what.rows[n]) +
             "; allowed: ascending, 0 to Lq - 1 = " + std::to_string(problem.q.size[2] - 1));
    }
  }
}

template <class T>
View<T> room(const char* name, std::vector<T>& values, const kernel::Extents& size) {
  values.assign(element_count(name, size), T{});
  return {values.data(), size};
}

// The kernel's views, with room for what they point at.
kernel::Observation make_room(const Observe& what, const kernel::Forward& problem, Observation& result) {
  const auto [B, H, Lq, D] = problem.q.size;
  const int64_t Lk = problem.k.size[2];
  kernel::Observation views;
  if (what.entropy) views.entropy = room("entropy", result.entropy, {B, H, Lq, 1});
  if (what.row_max) views.row_max = room("row_max", result.row_max, {B, H, Lq, 1});
  if (what.distance) views.distance = room("distance", result.distance, {B, H, Lq, 1});
  if (what.column_sums) views.column_sums = room("column_sums", result.column_sums, {B, H, Lk, 1});
  if (what.top_k > 0) {
    views.top_keys = room("top_keys", result.top_keys, {B, H, Lq, what.top_k});
    views.top_weights = room("top_weights", result.top_weights, {B, H, Lq, what.top_k});
  }
  if (what.block_rows > 0) {
    const kernel::Extents size{B, H, (Lq + what.block_rows - 1) / what.block_rows,
                               (Lk + what.block_keys - 1) / what.block_keys};
    views.block_rows = what.block_rows;
    views.block_keys = what.block_keys;
    views.block_mean = room("block_mean", result.block_mean, size);
    views.block_max = room("block_max", result.block_max, size);
  }
  if (!what.rows.empty()) {
    const auto count = static_cast<int64_t>(what.rows.size());
    views.rows = what.rows.data();
    views.row_count = count;
    views.row_weights = room("row_weights", result.row_weights, {B, H, count, Lk});
  }
  return views;
}

// What the LSE adds to the kernel's statistics.
void finish(const Observe& what, const kernel::Forward& problem, Observation& result) {
  const auto [B, H, Lq, D] = problem.q.size;
  if (what.entropy && problem.sinks) result.sink_mass.assign(B * H * Lq, 0.0F);
  if (what.distance) result.head_distance.assign(B * H, 0.0F);
  for (int64_t head = 0; head < B * H; ++head) {
    double sum = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < Lq; ++i) {
      const float lse = problem.lse(head / H, head % H, i, 0);
      if (lse == kNothing) continue;
      if (!result.sink_mass.empty()) {
        result.sink_mass[head * Lq + i] = std::exp(problem.sinks(head / H, head % H, 0, 0) - lse);
      }
      if (what.distance) sum += result.distance[head * Lq + i];
      ++count;
    }
    if (what.distance && count > 0)
      result.head_distance[head] = static_cast<float>(sum / static_cast<double>(count));
  }
}

}  // namespace

Observation observe(const Observe& what, const Spec& spec, kernel::Forward problem, int64_t distance_offset,
                    const std::function<void()>& few_rows, kernel::Parallel& parallel) {
  check_observe(what, problem);
  Observation result;
  const auto [B, H, Lq, D] = problem.q.size;
  std::vector<float> own_lse;
  const bool to_decode = problem.out && B * H * Lq > 0 && !spec.row_invariant &&
                         kernel::choose_forward_tiling(problem).kind == kernel::ForwardTiling::Kind::decode;
  if (to_decode) {
    // Few rows: their result comes from the decode kernel, and looking at them once more costs little.
    few_rows();
    problem.out = {};
  }
  if (to_decode || !problem.lse) problem.lse = room("lse", own_lse, {B, H, Lq, 1});
  problem.observe = make_room(what, problem, result);
  problem.observe.distance_offset = distance_offset;
  const kernel::ForwardTiling tiling{};  // prefill
  const Scratch scratch(kernel::forward_workspace(problem, tiling, parallel.workers()));
  if (B * H * Lq > 0) kernel::forward(problem, tiling, scratch.bytes(), parallel);
  finish(what, problem, result);
  return result;
}

Observation observe(const Observe& what, const Spec& spec, const Operands& operands,
                    kernel::Parallel& parallel) {
  if (operands.out) {
    check(spec, operands);
  } else {
    check_inputs(spec, operands);
  }
  if (operands.out && residue_period(spec, operands) > 0) {
    // The result comes class by class; statistics of rows and keys are taken in their order.
    attention(spec, operands, parallel);
    Operands inputs = operands;
    inputs.out = {};
    inputs.lse = {};
    return observe(what, spec, inputs, parallel);
  }
  const BoundMask mask = bind_mask(spec, operands);
  const int64_t offset =
      spec.alibi_align == Align::bottom_right ? operands.k.size[2] - operands.q.size[2] : 0;
  return observe(
      what, spec, lower(spec, operands, mask), offset, [&] { attention(spec, operands, parallel); },
      parallel);
}

}  // namespace regard::attention

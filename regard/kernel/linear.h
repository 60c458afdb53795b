#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "regard/kernel/parallel.h"
#include "regard/kernel/view.h"

// Linear attention: a state S [Dk, Dv] for each key/value head in place of a softmax over keys. With p the
// feature map, a_t = exp(log_decay_t) and r_t, w_t what a position reads and writes:
//   S_t = a_t S_(t-1) + p(k_t) w_t^T,  w_t = v_t, or by the delta rule beta_t (v_t - (a_t S_(t-1))^T p(k_t))
//   z_t = a_t z_(t-1) + p(k_t)
//   out_t = scale p(q_t) S_t / denominator(scale p(q_t) z_t)
// Without `causal` every query reads the state after the last key. See attention/linear.h for the sources.
namespace regard::kernel {

enum class FeatureMap : uint8_t {
  identity,
  elu1,  // elu(x) + 1: x + 1 above 0, e^x elsewhere
  relu
};

enum class Denominator : uint8_t {
  none,
  add,   // scale p(q) z + epsilon
  clamp  // max(scale p(q) z, epsilon)
};

// One problem. Query head h reads the state of key/value head h / (Hq / Hkv). Any strides; zero strides
// repeat inputs. Callers are expected to have checked shapes (attention/ does).
struct Linear {
  ConstAnyView q;               // [B, Hq, Lq, Dk]
  ConstAnyView k;               // [B, Hkv, Lk, Dk], the type of q
  ConstAnyView v;               // [B, Hkv, Lk, Dv], the type of q
  View<const float> log_decay;  // [B, Hkv, Lk, 1 or Dk]; data == nullptr: no decay. Causal only
  View<const float> beta;       // [B, Hkv, Lk, 1]: the delta rule; data == nullptr: plain sums. Causal only
  View<const float> state;      // [B, Hkv, Dk, Dv] before the first key; data == nullptr: 0
  View<const float> norm;       // [B, Hkv, Dk, 1] likewise, z; only with a denominator
  View<const int64_t> key_lengths;  // [B, 1, 1, 1]: keys from there on are padding, neither written nor
                                    // decaying; data == nullptr: Lk
  AnyView out;                      // [B, Hq, Lq, Dv], f32 or the type of q; data == nullptr: not wanted
  View<float> denominator;          // [B, Hq, Lq, 1] what out was divided by, for the backward; optional
  View<float> state_out;            // [B, Hkv, Dk, Dv] after the last key; may be `state` itself; optional
  View<float> norm_out;             // [B, Hkv, Dk, 1]; optional
  float scale = 1.0F;
  float epsilon = 0.0F;
  FeatureMap feature = FeatureMap::identity;
  Denominator divide = Denominator::none;
  bool causal = true;  // row i reads the state after key i; Lq == Lk
};

// Positions of a chunk: a function of the problem alone, so that bits do not depend on the threads.
struct LinearTiling {
  int64_t chunk = 64;  // at most kMaxLinearChunk; 1: step by step, each position a pass over the state
};
constexpr int64_t kMaxLinearChunk = 64;

LinearTiling choose_linear_tiling(const Linear& problem);

// Bytes of scratch of linear_forward(): a few chunks a worker; where there are fewer heads than workers, also
// a state for each chunk.
size_t linear_workspace(const Linear& problem, const LinearTiling& tiling, int workers);

// Runs. Allocates nothing; workspace must hold linear_workspace() bytes, aligned to 64.
void linear_forward(const Linear& problem, const LinearTiling& tiling, std::span<std::byte> workspace,
                    Parallel& parallel);

// Gradients of sum(grad_out * out) + sum(grad_state * state_out) + sum(grad_norm * norm_out). Whatever has no
// data is not computed.
struct LinearBackward {
  Linear forward;                    // as it ran; with a denominator, out and denominator are inputs here
  ConstAnyView grad_out;             // [B, Hq, Lq, Dv], f32 or the type of q; data == nullptr: 0
  View<const float> grad_state_out;  // [B, Hkv, Dk, Dv]; data == nullptr: 0
  View<const float> grad_norm_out;   // [B, Hkv, Dk, 1]; data == nullptr: 0
  AnyView grad_q, grad_k, grad_v;    // sizes of q, k, v; f32 or the type of q
  View<float> grad_log_decay;  // [B, Hkv, Lk, 1 or Dk]: every element its own, also where strides repeat
  View<float> grad_beta;       // [B, Hkv, Lk, 1], likewise
  View<float> grad_state;      // [B, Hkv, Dk, Dv]
  View<float> grad_norm;       // [B, Hkv, Dk, 1]
};

// Scratch of linear_backward(): a state for each chunk (not for each step), of the heads at work.
size_t linear_backward_workspace(const LinearBackward& problem, const LinearTiling& tiling, int workers);

// Runs. Allocates nothing. Gradients are overwritten and may not overlap anything. The gradient of a decay
// is finite only where its chunk is.
void linear_backward(const LinearBackward& problem, const LinearTiling& tiling,
                     std::span<std::byte> workspace, Parallel& parallel);

}  // namespace regard::kernel

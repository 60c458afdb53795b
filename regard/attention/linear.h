#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "regard/attention/spec.h"
#include "regard/kernel/linear.h"

// Linear attention: one operator for the family that keeps a state S [Dk, Dv] a head where softmax attention
// keeps all keys. Time is linear in the length, memory of a decoder constant.
//
//   S_t = a_t S_(t-1) + p(k_t) w_t^T       w_t = v_t, or beta_t (v_t - (a_t S_(t-1))^T p(k_t))
//   z_t = a_t z_(t-1) + p(k_t)             a_t = exp(log_decay_t), of the head or of each feature
//   out_t = scale p(q_t) S_t / denominator(scale p(q_t) z_t)
//
// | published as                                   | here                                                  |
// | linear attention (arXiv 2006.16236)            | elu1, Denominator::add                                |
// | SANA's ReLU attention (2410.10629)             | relu, Denominator::add, causal = false                |
// | TransNormer's NormAttention (2210.10340)       | any feature, no denominator, then RMSNorm             |
// | Lightning attention (2501.08313), retention    | log_decay [1, H, 1, 1]                                |
// | gated (GLA 2312.06635; ONNX "gated")           | log_decay [B, H, L, 1 or Dk]                          |
// | (gated) delta rule (2406.06484, 2412.06464)    | beta, and log_decay                                   |
// | cosFormer (2202.08791), PolaFormer (2501.15061)| features made before the call, Denominator            |
namespace regard::attention {

using kernel::Denominator;
using kernel::FeatureMap;

// How it is computed. All forms give the same numbers within rounding.
enum class LinearForm : uint8_t {
  automatic,  // by the sizes
  recurrent,  // position by position; causal only
  chunked,    // products inside chunks, the state from chunk to chunk
};

struct LinearSpec {
  FeatureMap feature = FeatureMap::identity;
  Denominator denominator = Denominator::none;
  double epsilon = 1e-6;  // with a denominator; at least 0
  double scale = 1.0;     // no 1 / sqrt(Dk) by itself
  bool causal = true;  // row i reads the state after key i, and Lq == Lk; else all rows read the last state
  LinearForm form = LinearForm::automatic;
  int64_t chunk = 0;  // positions of a chunk, 2 to kernel::kMaxLinearChunk; 0: by the sizes

  bool operator==(const LinearSpec& other) const = default;
  std::string to_string() const;
};

// Views are borrowed; strides are free. Query head h reads the state of head h / (Hq / Hkv). Any size may be
// 0, but for the numbers of heads.
struct LinearOperands {
  ConstAnyView q;               // [B, Hq, Lq, Dk]
  ConstAnyView k;               // [B, Hkv, Lk, Dk]
  ConstAnyView v;               // [B, Hkv, Lk, Dv]
  AnyView out;                  // [B, Hq, Lq, Dv]; f32 or the inputs' type; overlaps no input
  View<const float> log_decay;  // broadcasts to [B, Hkv, Lk, Dk], at most 0 where nothing grows; -inf forgets
                                // all; causal only; optional
  View<const float> beta;   // broadcasts to [B, Hkv, Lk, 1]: the delta rule, without a denominator; causal
                            // only; optional
  View<const float> state;  // [B, Hkv, Dk, Dv] before the first key; optional: 0
  View<const float> norm;   // [B, Hkv, Dk, 1] z before the first key; with a denominator; optional: 0
  View<const int64_t> key_lengths;  // [B or 1, 1, 1, 1]: later keys are padding: they neither write nor
                                    // decay, and rows there read the last state; optional
  View<float> denominators;  // [B, Hq, Lq, 1] what rows were divided by: the backward needs it; optional
  View<float> state_out;     // [B, Hkv, Dk, Dv] after the last key; may be `state` itself; optional
  View<float> norm_out;      // [B, Hkv, Dk, 1]; optional
};

// Throws std::invalid_argument that names the operand, its value and what is allowed.
void check(const LinearSpec& spec, const LinearOperands& operands);

// Chunks, and why: made once for a form of the problem, run without a check or an allocation. Bits do not
// depend on the number of workers.
class LinearPlan {
 public:
  // Throws std::invalid_argument like check().
  LinearPlan(const LinearSpec& spec, const LinearOperands& operands);

  size_t workspace_bytes(int workers) const;

  // The operands must have the planned form. workspace is aligned to 64 bytes and holds
  // workspace_bytes(parallel.workers()).
  void run(const LinearOperands& operands, std::span<std::byte> workspace, kernel::Parallel& parallel) const;

  const kernel::LinearTiling& tiling() const { return tiling_; }
  std::string to_string() const;

 private:
  LinearSpec spec_;
  LinearOperands form_;  // the data is never read
  kernel::LinearTiling tiling_;
};

// Fills out, and what else is given to be filled.
void linear_attention(const LinearSpec& spec, const LinearOperands& operands,
                      kernel::Parallel& parallel = kernel::default_parallel());

// Where gradients go; what has no data is not computed. Each is overwritten and has the sizes of its operand:
// what an operand of size 1 repeats is summed.
struct LinearGradients {
  AnyView q, k, v;  // f32 or the type of q
  View<float> log_decay, beta, state, norm;
};

// Gradients of what linear_attention() filled. No data: 0.
struct LinearArriving {
  ConstAnyView out;               // [B, Hq, Lq, Dv], f32 or the type of q
  View<const float> state, norm;  // of state_out and norm_out
};

// Gradients of sum(arriving.out * out) + sum(arriving.state * state_out) + sum(arriving.norm * norm_out).
// With a denominator, operands.out and operands.denominators are what linear_attention() made. Memory: one
// state a chunk, none a step. Bits do not depend on the number of workers. Throws std::invalid_argument.
void linear_backward(const LinearSpec& spec, const LinearOperands& operands, const LinearArriving& arriving,
                     const LinearGradients& gradients,
                     kernel::Parallel& parallel = kernel::default_parallel());

// Scratch of linear_backward() with so many workers.
size_t linear_backward_bytes(const LinearSpec& spec, const LinearOperands& operands, int workers);

// The weight of each key in each row, [Lq, Lk] of one batch entry and query head: row i of out is the sum of
// weights[i][j] v_j, apart from what a given state adds. For looking at; O(Lq Lk Dk). Not for the delta rule,
// whose rows are no sums of values with weights of pairs alone.
std::vector<double> linear_weights(const LinearSpec& spec, const LinearOperands& operands, int64_t batch,
                                   int64_t head);

}  // namespace regard::attention

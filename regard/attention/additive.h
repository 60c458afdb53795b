#pragma once

#include <vector>

#include "regard/attention/backward.h"
#include "regard/attention/reference.h"
#include "regard/attention/spec.h"
#include "regard/kernel/parallel.h"

// Additive attention (Bahdanau et al. 2015, arXiv 1409.0473, appendix A): softmax over j of
//   sum over f of vector_f tanh(q_if + k_jf),
// times v. q [B, Hq, Lq, Da] and k [B, Hkv, Lk, Da] are already projected (W q and U k); a bias inside the
// tanh is part of either. Of a Spec only the mask has a meaning here; scale, softcap, dropout, bias, slopes
// and sinks are refused. Error bound as for the dot product, with S the sum of |vector_f|.
namespace regard::attention {

// Throws std::invalid_argument unless the spec, the options and the vector have a meaning here.
void check_additive(const Spec& spec, const Operands& operands, const View<const float>& vector);

// Fills operands.out (and operands.lse, if given) with the same rules for masks, empty rows and non-finite
// numbers as attention(). vector: [B or 1, Hq or 1, 1, Da]. Throws std::invalid_argument on a malformed call.
void additive_attention(const Spec& spec, const Operands& operands, View<const float> vector,
                        kernel::Parallel& parallel = kernel::default_parallel());

// Where gradients go, float32; what has no data is not computed. vector: sizes of the vector, sums over what
// it repeats.
struct AdditiveGradients {
  View<float> q, k, v, vector;
};

// operands.out (float32) and operands.lse as additive_attention() made them. arriving.out must be float32.
void additive_backward(const Spec& spec, const Operands& operands, View<const float> vector,
                       const Arriving& arriving, const AdditiveGradients& gradients,
                       kernel::Parallel& parallel = kernel::default_parallel());

// The plain twin in float64.
Reference additive_reference(const Spec& spec, const Operands& operands, View<const float> vector);

struct AdditiveReferenceGradients {
  std::vector<double> q, k, v;
  std::vector<double> vector;  // [B, Hq, Da], sums over what is repeated are the caller's
};
AdditiveReferenceGradients additive_reference_backward(const Spec& spec, const Operands& operands,
                                                       View<const float> vector,
                                                       const std::vector<double>& grad_out,
                                                       const std::vector<double>& grad_lse = {});

}  // namespace regard::attention

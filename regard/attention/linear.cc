#include "regard/attention/linear.h"

#include <cmath>
#include <sstream>
#include <stdexcept>

#include "regard/attention/linear_check.h"
#include "regard/attention/linear_reference.h"
#include "regard/attention/lower.h"
#include "regard/attention/scratch.h"

namespace regard::attention {
namespace {

const char* name(FeatureMap map) {
  switch (map) {
    case FeatureMap::identity:
      return "identity";
    case FeatureMap::elu1:
      return "elu + 1";
    case FeatureMap::relu:
      return "relu";
  }
  return "unknown";
}

// What the kernels take. A decay of one number a key stays one; what else is broadcast repeats.
kernel::Linear lower(const LinearSpec& spec, const LinearOperands& operands) {
  const kernel::Extents& k = operands.k.size;
  const kernel::Extents per_key{k[0], k[1], k[2], 1};
  kernel::Linear p;
  p.q = operands.q;
  p.k = operands.k;
  p.v = operands.v;
  if (operands.log_decay) {
    p.log_decay = broadcast(operands.log_decay, operands.log_decay.size[3] == 1 ? per_key : k);
  }
  if (operands.beta) p.beta = broadcast(operands.beta, per_key);
  p.state = operands.state;
  p.norm = operands.norm;
  if (operands.key_lengths) p.key_lengths = broadcast(operands.key_lengths, {k[0], 1, 1, 1});
  p.out = operands.out;
  p.denominator = operands.denominators;
  p.state_out = operands.state_out;
  p.norm_out = operands.norm_out;
  p.scale = static_cast<float>(spec.scale);
  p.epsilon = static_cast<float>(spec.epsilon);
  p.feature = spec.feature;
  p.divide = spec.denominator;
  p.causal = spec.causal;
  return p;
}

kernel::LinearTiling choose_tiling(const LinearSpec& spec, const LinearOperands& operands) {
  if (spec.form == LinearForm::recurrent) return {1};
  kernel::LinearTiling tiling = kernel::choose_linear_tiling(lower(spec, operands));
  if (spec.chunk > 0) tiling.chunk = spec.chunk;
  if (spec.form == LinearForm::chunked && tiling.chunk == 1) tiling.chunk = kernel::kMaxLinearChunk;
  return tiling;
}

// A gradient whose operand is broadcast: the kernel writes every element, here they are summed.
class Summed {
 public:
  // full: sizes of what the kernel writes.
  Summed(const View<float>& wanted, const kernel::Extents& full) : wanted_(wanted), full_(wanted) {
    if (!wanted || wanted.size == full) return;
    values_.resize(static_cast<size_t>(element_count("a gradient", full)));
    full_ = View<float>(values_.data(), full);
  }
  const View<float>& target() const { return full_; }
  void sum() const {
    if (values_.empty()) return;
    const kernel::Extents& to = wanted_.size;
    std::vector<double> sums(static_cast<size_t>(to[0] * to[1] * to[2] * to[3]));
    const auto at = [&](int64_t b, int64_t h, int64_t p, int64_t f) {
      return ((b % to[0] * to[1] + h % to[1]) * to[2] + p % to[2]) * to[3] + f % to[3];
    };
    each(full_.size, [&](int64_t b, int64_t h, int64_t p, int64_t f) {
      sums[static_cast<size_t>(at(b, h, p, f))] += full_(b, h, p, f);
    });
    each(to, [&](int64_t b, int64_t h, int64_t p, int64_t f) {
      wanted_(b, h, p, f) = static_cast<float>(sums[static_cast<size_t>(at(b, h, p, f))]);
    });
  }

 private:
  template <class F>
  static void each(const kernel::Extents& size, F&& fn) {
    for (int64_t b = 0; b < size[0]; ++b)
      for (int64_t h = 0; h < size[1]; ++h)
        for (int64_t p = 0; p < size[2]; ++p)
          for (int64_t f = 0; f < size[3]; ++f) fn(b, h, p, f);
  }

  View<float> wanted_;
  View<float> full_;
  std::vector<float> values_;
};

}  // namespace

std::string LinearSpec::to_string() const {
  std::ostringstream out;
  out << "linear(" << name(feature);
  if (denominator == Denominator::add) out << ", / (sum + " << epsilon << ")";
  if (denominator == Denominator::clamp) out << ", / max(sum, " << epsilon << ")";
  if (scale != 1.0) out << ", scale " << scale;
  out << (causal ? ", causal)" : ")");
  return out.str();
}

LinearPlan::LinearPlan(const LinearSpec& spec, const LinearOperands& operands)
    : spec_(spec), form_(operands) {
  check_linear_form(spec, operands);
  tiling_ = choose_tiling(spec, operands);
}

size_t LinearPlan::workspace_bytes(int workers) const {
  return kernel::linear_workspace(lower(spec_, form_), tiling_, workers);
}

void LinearPlan::run(const LinearOperands& operands, std::span<std::byte> workspace,
                     kernel::Parallel& parallel) const {
  kernel::linear_forward(lower(spec_, operands), tiling_, workspace, parallel);
}

std::string LinearPlan::to_string() const {
  std::ostringstream out;
  out << spec_.to_string() << ": ";
  if (tiling_.chunk == 1)
    out << "position by position, " << form_.k.size[2] << " of them";
  else
    out << "chunks of " << tiling_.chunk << " positions";
  return out.str();
}

void linear_attention(const LinearSpec& spec, const LinearOperands& operands, kernel::Parallel& parallel) {
  const LinearPlan plan(spec, operands);
  check_linear_data(operands);
  const Scratch scratch(plan.workspace_bytes(parallel.workers()));
  plan.run(operands, scratch.bytes(), parallel);
}

void linear_backward(const LinearSpec& spec, const LinearOperands& operands, const LinearArriving& arriving,
                     const LinearGradients& gradients, kernel::Parallel& parallel) {
  check_linear_backward(spec, operands, arriving, gradients);
  check_linear_data(operands);
  kernel::LinearBackward problem;
  problem.forward = lower(spec, operands);
  const Summed log_decay(gradients.log_decay, problem.forward.log_decay.size);
  const Summed beta(gradients.beta, problem.forward.beta.size);
  problem.grad_out = arriving.out;
  problem.grad_state_out = arriving.state;
  problem.grad_norm_out = arriving.norm;
  problem.grad_q = gradients.q;
  problem.grad_k = gradients.k;
  problem.grad_v = gradients.v;
  problem.grad_log_decay = log_decay.target();
  problem.grad_beta = beta.target();
  problem.grad_state = gradients.state;
  problem.grad_norm = gradients.norm;
  const kernel::LinearTiling tiling = choose_tiling(spec, operands);
  const Scratch scratch(kernel::linear_backward_workspace(problem, tiling, parallel.workers()));
  kernel::linear_backward(problem, tiling, scratch.bytes(), parallel);
  log_decay.sum();
  beta.sum();
}

size_t linear_backward_bytes(const LinearSpec& spec, const LinearOperands& operands, int workers) {
  check_linear_form(spec, operands);
  kernel::LinearBackward problem;
  problem.forward = lower(spec, operands);
  return kernel::linear_backward_workspace(problem, choose_tiling(spec, operands), workers);
}

std::vector<double> linear_weights(const LinearSpec& spec, const LinearOperands& operands, int64_t batch,
                                   int64_t head) {
  check(spec, operands);
  const kernel::Extents& q = operands.q.size;
  const int64_t keys = operands.k.size[2];
  if (operands.beta) {
    throw std::invalid_argument(
        "linear attention: weights were asked for with beta; allowed: without the delta rule");
  }
  if (batch < 0 || batch >= q[0] || head < 0 || head >= q[1]) {
    throw std::invalid_argument("linear attention: weights of batch entry " + std::to_string(batch) +
                                ", head " + std::to_string(head) + " were asked for; allowed: below " +
                                std::to_string(q[0]) + ", " + std::to_string(q[1]));
  }
  // The values of key j are the j-th unit vector: out is then the row of weights.
  LinearArrays a = linear_arrays(spec, operands);
  const int64_t kv = head / (q[1] / operands.k.size[1]);
  const auto part = [](const std::vector<double>& all, int64_t at, int64_t count) {
    return all.empty() ? all : std::vector<double>(all.begin() + at * count, all.begin() + (at + 1) * count);
  };
  const int64_t unit = batch * a.kv_heads + kv;
  LinearArrays one{.queries = a.queries, .keys = keys, .dk = a.dk, .dv = keys};
  one.q = part(a.q, batch * a.heads + head, a.queries * a.dk);
  one.k = part(a.k, unit, keys * a.dk);
  one.log_decay = part(a.log_decay, unit, keys * a.dk);
  one.norm = part(a.norm, unit, a.dk);
  if (!a.key_lengths.empty()) one.key_lengths = {a.key_lengths[static_cast<size_t>(batch)]};
  one.v.assign(static_cast<size_t>(element_count("the weights", {1, 1, keys, keys})), 0.0);
  for (int64_t j = 0; j < keys; ++j) one.v[static_cast<size_t>(j * keys + j)] = 1.0;
  return linear_reference(spec, one).out;
}

}  // namespace regard::attention

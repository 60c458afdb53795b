#include "regard/attention/linear_reference.h"

#include <cmath>

#include "regard/attention/definition.h"
#include "regard/attention/lower.h"

namespace regard::attention {
namespace {

double mapped(FeatureMap map, double x) {
  switch (map) {
    case FeatureMap::elu1:
      return x > 0 ? x + 1 : std::exp(x);
    case FeatureMap::relu:
      return x <= 0 ? 0 : x;
    case FeatureMap::identity:
      break;
  }
  return x;
}

double slope(FeatureMap map, double x) {
  switch (map) {
    case FeatureMap::elu1:
      return x > 0 ? 1 : std::exp(x);
    case FeatureMap::relu:
      return x <= 0 ? 0 : 1;
    case FeatureMap::identity:
      break;
  }
  return 1;
}

// One key/value head of one batch entry.
struct Head {
  const LinearSpec& spec;
  const LinearArrays& a;
  int64_t b, g;

  int64_t length() const { return a.key_lengths.empty() ? a.keys : a.key_lengths[b]; }
  int64_t kv_row(int64_t t) const { return (b * a.kv_heads + g) * a.keys + t; }
  int64_t q_row(int64_t h, int64_t i) const { return (b * a.heads + h) * a.queries + i; }
  double k(int64_t t, int64_t f) const { return mapped(spec.feature, a.k[kv_row(t) * a.dk + f]); }
  double q(int64_t h, int64_t i, int64_t f) const {
    return mapped(spec.feature, a.q[q_row(h, i) * a.dk + f]);
  }
  double decay(int64_t t, int64_t f) const {
    return a.log_decay.empty() ? 1.0 : std::exp(a.log_decay[kv_row(t) * a.dk + f]);
  }
  bool delta() const { return !a.beta.empty(); }

  // s, z: after position t, where they were before it. write: what the position writes, v or w; error: w /
  // beta.
  void step(int64_t t, std::vector<double>& s, std::vector<double>& z, std::vector<double>& write,
            std::vector<double>& error) const {
    for (int64_t f = 0; f < a.dk; ++f) {
      const double x = decay(t, f);
      for (int64_t n = 0; n < a.dv; ++n) s[f * a.dv + n] *= x;
      z[f] = z[f] * x + k(t, f);
    }
    for (int64_t n = 0; n < a.dv; ++n) {
      error[n] = a.v[kv_row(t) * a.dv + n];
      if (delta())
        for (int64_t f = 0; f < a.dk; ++f) error[n] -= s[f * a.dv + n] * k(t, f);
      write[n] = delta() ? a.beta[kv_row(t)] * error[n] : error[n];
    }
    for (int64_t f = 0; f < a.dk; ++f)
      for (int64_t n = 0; n < a.dv; ++n) s[f * a.dv + n] += k(t, f) * write[n];
  }

  double denominator(int64_t h, int64_t i, const std::vector<double>& z) const {
    if (spec.denominator == Denominator::none) return 1;
    double sum = 0;
    for (int64_t f = 0; f < a.dk; ++f) sum += q(h, i, f) * z[f];
    sum *= spec.scale;
    return spec.denominator == Denominator::add ? sum + spec.epsilon
           : sum < spec.epsilon                 ? spec.epsilon
                                                : sum;
  }
};

template <class T>
std::vector<T> slice(const std::vector<T>& all, int64_t at, int64_t count) {
  if (all.empty()) return std::vector<T>(count, T());
  return {all.begin() + at * count, all.begin() + (at + 1) * count};
}

void add_at(std::vector<double>& to, int64_t at, const std::vector<double>& from) {
  std::copy(from.begin(), from.end(), to.begin() + at * static_cast<int64_t>(from.size()));
}

// Gradients of one head, from its last position to its first.
class HeadBackward {
 public:
  HeadBackward(const Head& head, const std::vector<double>& grad_out, const std::vector<double>& grad_state,
               const std::vector<double>& grad_norm, LinearReferenceGradients& to)
      : head_(head),
        a_(head.a),
        grad_out_(grad_out),
        to_(to),
        ds_(slice(grad_state, unit(), a_.dk * a_.dv)),
        dz_(slice(grad_norm, unit(), a_.dk)) {}

  void run() {
    // All states, and what each position wrote.
    std::vector<std::vector<double>> s{slice(a_.state, unit(), a_.dk * a_.dv)};
    std::vector<std::vector<double>> z{slice(a_.norm, unit(), a_.dk)};
    std::vector<std::vector<double>> errors;
    std::vector<std::vector<double>> writes;
    for (int64_t t = 0; t < head_.length(); ++t) {
      s.push_back(s.back());
      z.push_back(z.back());
      writes.emplace_back(a_.dv);
      errors.emplace_back(a_.dv);
      head_.step(t, s.back(), z.back(), writes.back(), errors.back());
    }
    if (!head_.spec.causal) {
      for (int64_t i = 0; i < a_.queries; ++i) read(i, s.back(), z.back());
    } else {
      for (int64_t i = head_.length(); i < a_.queries; ++i) read(i, s.back(), z.back());
    }
    for (int64_t t = head_.length() - 1; t >= 0; --t) {
      if (head_.spec.causal) read(t, s[t + 1], z[t + 1]);
      write(t, s[t], z[t], writes[t], errors[t]);
    }
    if (!to_.state.empty()) add_at(to_.state, unit(), ds_);
    if (!to_.norm.empty()) add_at(to_.norm, unit(), dz_);
  }

 private:
  int64_t unit() const { return head_.b * a_.kv_heads + head_.g; }

  // Row i reads s and z.
  void read(int64_t i, const std::vector<double>& s, const std::vector<double>& z) {
    const int64_t group = a_.heads / a_.kv_heads;
    for (int64_t h = head_.g * group; h < (head_.g + 1) * group; ++h) {
      const int64_t row = head_.q_row(h, i);
      const double denominator = head_.denominator(h, i, z);
      if (denominator == 0) continue;
      // out = numerator / denominator.
      const double* go = grad_out_.data() + row * a_.dv;
      double of_denominator = 0;
      std::vector<double> dq(a_.dk);
      for (int64_t f = 0; f < a_.dk; ++f) {
        const double q = head_.q(h, i, f);
        for (int64_t n = 0; n < a_.dv; ++n) {
          const double grad = go[n] / denominator * head_.spec.scale;
          dq[f] += grad * s[f * a_.dv + n];
          ds_[f * a_.dv + n] += grad * q;
          of_denominator -= grad * q * s[f * a_.dv + n] / denominator;
        }
      }
      const Denominator kind = head_.spec.denominator;
      const bool passes =
          kind == Denominator::add || (kind == Denominator::clamp && denominator != head_.spec.epsilon);
      for (int64_t f = 0; f < a_.dk; ++f) {
        if (passes) {
          dq[f] += of_denominator * head_.spec.scale * z[f];
          dz_[f] += of_denominator * head_.spec.scale * head_.q(h, i, f);
        }
        to_.q[row * a_.dk + f] = dq[f] * slope(head_.spec.feature, a_.q[row * a_.dk + f]);
      }
    }
  }

  // Position t made of s and z the next ones; ds_ and dz_ become gradients of s and z.
  void write(int64_t t, const std::vector<double>& s, const std::vector<double>& z,
             const std::vector<double>& writes, const std::vector<double>& errors) {
    const int64_t row = head_.kv_row(t);
    std::vector<double> dk(a_.dk);
    std::vector<double> de(a_.dv);
    for (int64_t n = 0; n < a_.dv; ++n) {
      double dw = 0;
      for (int64_t f = 0; f < a_.dk; ++f) {
        dw += ds_[f * a_.dv + n] * head_.k(t, f);
        dk[f] += ds_[f * a_.dv + n] * writes[n];
      }
      de[n] = dw;
      if (head_.delta()) {
        to_.beta[row] += dw * errors[n];
        de[n] = dw * a_.beta[row];
      }
      to_.v[row * a_.dv + n] = de[n];
    }
    for (int64_t f = 0; f < a_.dk; ++f) {
      const double decay = head_.decay(t, f);
      dk[f] += dz_[f];
      double of_decay = 0;
      for (int64_t n = 0; n < a_.dv; ++n) {
        double& ds = ds_[f * a_.dv + n];
        if (head_.delta()) {
          dk[f] -= decay * s[f * a_.dv + n] * de[n];
          ds -= head_.k(t, f) * de[n];
        }
        of_decay += ds * s[f * a_.dv + n];
        ds *= decay;
      }
      of_decay += dz_[f] * z[f];
      dz_[f] *= decay;
      if (!to_.log_decay.empty()) to_.log_decay[row * a_.dk + f] = of_decay * decay;
      to_.k[row * a_.dk + f] = dk[f] * slope(head_.spec.feature, a_.k[row * a_.dk + f]);
    }
  }

  const Head& head_;
  const LinearArrays& a_;
  const std::vector<double>& grad_out_;
  LinearReferenceGradients& to_;
  std::vector<double> ds_, dz_;
};

}  // namespace

LinearArrays linear_arrays(const LinearSpec& spec, const LinearOperands& operands) {
  const kernel::Extents& q = operands.q.size;
  const kernel::Extents& k = operands.k.size;
  LinearArrays a{.batch = q[0],
                 .heads = q[1],
                 .kv_heads = k[1],
                 .queries = q[2],
                 .keys = k[2],
                 .dk = k[3],
                 .dv = operands.v.size[3]};
  const auto copy = [](const auto& view, const kernel::Extents& size) {
    std::vector<double> values;
    for (int64_t b = 0; b < size[0]; ++b)
      for (int64_t h = 0; h < size[1]; ++h)
        for (int64_t p = 0; p < size[2]; ++p)
          for (int64_t f = 0; f < size[3]; ++f) values.push_back(read(view, b, h, p, f));
    return values;
  };
  a.q = copy(operands.q, q);
  a.k = copy(operands.k, k);
  a.v = copy(operands.v, operands.v.size);
  if (operands.log_decay) a.log_decay = copy(ConstAnyView(broadcast(operands.log_decay, k)), k);
  const kernel::Extents per_key{k[0], k[1], k[2], 1};
  if (operands.beta) a.beta = copy(ConstAnyView(broadcast(operands.beta, per_key)), per_key);
  if (operands.state) a.state = copy(ConstAnyView(operands.state), operands.state.size);
  if (operands.norm && spec.denominator != Denominator::none)
    a.norm = copy(ConstAnyView(operands.norm), operands.norm.size);
  if (operands.key_lengths) {
    const auto lengths = broadcast(operands.key_lengths, {q[0], 1, 1, 1});
    for (int64_t b = 0; b < q[0]; ++b) a.key_lengths.push_back(lengths(b, 0, 0, 0));
  }
  return a;
}

LinearReference linear_reference(const LinearSpec& spec, const LinearArrays& a) {
  LinearReference result;
  result.out.assign(a.batch * a.heads * a.queries * a.dv, 0.0);
  result.denominators.assign(a.batch * a.heads * a.queries, 1.0);
  const int64_t group = a.heads / a.kv_heads;
  for (int64_t b = 0; b < a.batch; ++b)
    for (int64_t g = 0; g < a.kv_heads; ++g) {
      const Head head{spec, a, b, g};
      const int64_t unit = b * a.kv_heads + g;
      std::vector<double> s = slice(a.state, unit, a.dk * a.dv);
      std::vector<double> z = slice(a.norm, unit, a.dk);
      std::vector<double> write(a.dv);
      std::vector<double> error(a.dv);
      const auto read_row = [&](int64_t i) {
        for (int64_t h = g * group; h < (g + 1) * group; ++h) {
          const int64_t row = head.q_row(h, i);
          const double denominator = head.denominator(h, i, z);
          result.denominators[row] = denominator;
          if (denominator == 0) continue;
          for (int64_t n = 0; n < a.dv; ++n) {
            double sum = 0;
            for (int64_t f = 0; f < a.dk; ++f) sum += head.q(h, i, f) * s[f * a.dv + n];
            result.out[row * a.dv + n] = spec.scale * sum / denominator;
          }
        }
      };
      for (int64_t t = 0; t < a.keys; ++t) {
        if (t < head.length()) head.step(t, s, z, write, error);
        if (spec.causal) read_row(t);
      }
      if (!spec.causal)
        for (int64_t i = 0; i < a.queries; ++i) read_row(i);
      result.state.insert(result.state.end(), s.begin(), s.end());
      result.norm.insert(result.norm.end(), z.begin(), z.end());
    }
  return result;
}

LinearReferenceGradients linear_reference_backward(const LinearSpec& spec, const LinearArrays& a,
                                                   const std::vector<double>& grad_out,
                                                   const std::vector<double>& grad_state,
                                                   const std::vector<double>& grad_norm) {
  LinearReferenceGradients to;
  to.q.assign(a.q.size(), 0.0);
  to.k.assign(a.k.size(), 0.0);
  to.v.assign(a.v.size(), 0.0);
  to.log_decay.assign(a.log_decay.size(), 0.0);
  to.beta.assign(a.beta.size(), 0.0);
  to.state.assign(a.state.size(), 0.0);
  to.norm.assign(a.norm.size(), 0.0);
  for (int64_t b = 0; b < a.batch; ++b)
    for (int64_t g = 0; g < a.kv_heads; ++g) {
      const Head head{spec, a, b, g};
      HeadBackward(head, grad_out, grad_state, grad_norm, to).run();
    }
  return to;
}

}  // namespace regard::attention

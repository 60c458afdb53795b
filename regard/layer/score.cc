#include "regard/layer/score.h"

#include <ATen/ATen.h>

#include <array>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "regard/autograd/structured.h"

namespace regard::layer {
namespace {

constexpr std::array<std::pair<ScoreKind, const char*>, 7> kNames = {
    {{ScoreKind::dot, "dot"},
     {ScoreKind::scaled_dot, "scaled_dot"},
     {ScoreKind::cosine, "cosine"},
     {ScoreKind::general, "general"},
     {ScoreKind::additive, "additive"},
     {ScoreKind::concat, "concat"},
     {ScoreKind::concat_linear, "concat_linear"}}};

constexpr double kLeastTemperature = 0.01;

// Xavier uniform for each head's matrix [out, in].
at::Tensor xavier(at::IntArrayRef sizes) {
  const double bound =
      std::sqrt(6.0 / static_cast<double>(sizes[sizes.size() - 1] + sizes[sizes.size() - 2]));
  return at::empty(sizes, at::kFloat).uniform_(-bound, bound);
}

at::Tensor unit(const at::Tensor& x) {
  return x / x.norm(2, {-1}, true).clamp_min(1e-12);
}

// x [B, H, L, D] times weight^T, weight [H, out, D].
at::Tensor project(const at::Tensor& x, const at::Tensor& weight) {
  return at::matmul(x, weight.transpose(-1, -2));
}

}  // namespace

ScoreKind score_kind(const std::string& name) {
  std::string allowed;
  for (const auto& [kind, text] : kNames) {
    if (name == text) return kind;
    allowed += (allowed.empty() ? "" : ", ") + std::string(text);
  }
  throw std::invalid_argument("score_kind: name is \"" + name + "\"; allowed: " + allowed);
}

const char* name(ScoreKind kind) {
  for (const auto& [known, text] : kNames) {
    if (known == kind) return text;
  }
  return "";
}

Score::Score(const ScoreOptions& options) : options_(options) {
  ScoreOptions& o = options_;
  if (o.key_size == 0) o.key_size = o.query_size;
  if (o.hidden_size == 0) o.hidden_size = o.query_size;
  if (o.heads < 1 || o.query_size < 1 || o.key_size < 1 || o.hidden_size < 1) {
    throw std::invalid_argument("Score: heads and sizes must be at least 1");
  }
  const bool dots =
      o.kind == ScoreKind::dot || o.kind == ScoreKind::scaled_dot || o.kind == ScoreKind::cosine;
  if (dots && o.key_size != o.query_size) {
    throw std::invalid_argument(std::string("Score: ") + layer::name(o.kind) +
                                " needs queries and keys of one size, not " + std::to_string(o.query_size) +
                                " and " + std::to_string(o.key_size));
  }
  const int64_t both = o.query_size + o.key_size;
  switch (o.kind) {
    case ScoreKind::dot:
    case ScoreKind::scaled_dot:
      break;
    case ScoreKind::cosine:
      temperature_ = register_parameter("temperature", at::full({o.heads}, 0.1, at::kFloat));
      break;
    case ScoreKind::general:
      weight_ = register_parameter("weight", xavier({o.heads, o.query_size, o.key_size}));
      break;
    case ScoreKind::additive:
      query_weight_ = register_parameter("query_weight", xavier({o.heads, o.hidden_size, o.query_size}));
      key_weight_ = register_parameter("key_weight", xavier({o.heads, o.hidden_size, o.key_size}));
      break;
    case ScoreKind::concat:
      weight_ = register_parameter("weight", xavier({o.heads, o.hidden_size, both}));
      break;
    case ScoreKind::concat_linear:
      weight_ = register_parameter("weight", xavier({o.heads, 1, both}).squeeze(1));
      break;
  }
  if (o.kind == ScoreKind::additive || o.kind == ScoreKind::concat) {
    vector_ = register_parameter("vector", xavier({o.heads, 1, o.hidden_size}).squeeze(1));
  }
}

at::Tensor Score::forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const attention::Mask& mask, const autograd::AttentionExtras& extras,
                          at::Tensor* lse) const {
  attention::Spec spec;
  spec.mask = mask;
  spec.scale = 1.0;
  switch (options_.kind) {
    case ScoreKind::dot:
      break;
    case ScoreKind::scaled_dot:
      spec.scale.reset();
      break;
    case ScoreKind::cosine: {
      const at::Tensor scale = temperature_.clamp_min(kLeastTemperature).reciprocal().view({-1, 1, 1});
      return autograd::attention(spec, unit(q) * scale, unit(k), v, extras, lse);
    }
    case ScoreKind::general:
      return autograd::attention(spec, at::matmul(q, weight_), k, v, extras, lse);
    case ScoreKind::additive:
      return autograd::additive_attention(mask, project(q, query_weight_), project(k, key_weight_), v,
                                          vector_, extras, lse);
    case ScoreKind::concat:
      return autograd::additive_attention(
          mask, project(q, weight_.narrow(-1, 0, options_.query_size)),
          project(k, weight_.narrow(-1, options_.query_size, options_.key_size)), v, vector_, extras, lse);
    case ScoreKind::concat_linear: {
      // w's part for q is left out: it moves all logits of a row alike. Its gradient is 0, not missing.
      const at::Tensor of_key = weight_.narrow(-1, options_.query_size, options_.key_size).unsqueeze(1);
      const at::Tensor nothing = (weight_.narrow(-1, 0, options_.query_size) * 0).sum();
      const at::Tensor one = at::ones({q.size(0), q.size(1), q.size(2), 1}, q.options()) + nothing;
      return autograd::attention(spec, one, project(k, of_key), v, extras, lse);
    }
  }
  return autograd::attention(spec, q, k, v, extras, lse);
}

at::Tensor with_temperature(const at::Tensor& q, double temperature) {
  if (!(temperature > 0)) {
    throw std::invalid_argument("with_temperature: temperature is " + std::to_string(temperature) +
                                "; it must be positive");
  }
  return q / temperature;
}

at::Tensor with_log_length(const at::Tensor& q, int64_t keys, int64_t trained_length, bool causal) {
  if (trained_length < 2) {
    throw std::invalid_argument("with_log_length: trained_length is " + std::to_string(trained_length) +
                                "; it must be at least 2");
  }
  const int64_t rows = q.size(-2);
  std::vector<double> factors;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t seen = causal ? keys - rows + i + 1 : keys;
    const bool trained = seen == trained_length;  // exactly 1, whatever the division makes of it
    factors.push_back(seen < 2 || trained ? 1.0
                                          : std::log(static_cast<double>(seen)) /
                                                std::log(static_cast<double>(trained_length)));
  }
  return q * at::tensor(factors, at::kDouble).to(q.scalar_type()).unsqueeze(-1);
}

}  // namespace regard::layer

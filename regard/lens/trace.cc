#include "regard/lens/trace.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "regard/attention/attention.h"

namespace regard::lens {
namespace {

double dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

void require(const char* what, int64_t value, int64_t bound) {
  if (value < 0 || value >= bound) {
    throw std::invalid_argument(std::string(what) + " " + std::to_string(value) + " is outside 0 to " +
                                std::to_string(bound - 1));
  }
}

// The kernel's output for the whole head, of which one row is kept.
std::vector<float> kernel_row(const RecordedLayer& layer, int64_t head, int64_t position) {
  const auto result = [&] {
    attention::Operands operands = layer.operands(head);
    std::vector<float> out(static_cast<size_t>(layer.tokens * layer.value_size));
    operands.out = attention::View<float>(out.data(), {1, 1, layer.tokens, layer.value_size});
    attention::attention(layer.spec, operands);
    return out;
  }();
  const auto begin = result.begin() + position * layer.value_size;
  return {begin, begin + layer.value_size};
}

}  // namespace

double norm(std::span<const float> vector) {
  return std::sqrt(dot(vector, vector));
}

Trace trace(const Recording& recording, int64_t layer_number, int64_t head, int64_t position) {
  const RecordedLayer& layer = recording.at_layer(layer_number);
  require("head", head, layer.heads);
  require("position", position, layer.tokens);
  Trace out;
  out.layer = layer_number;
  out.head = head;
  out.kv_head = head / (layer.heads / layer.kv_heads);
  out.position = position;
  out.scale = layer.scale();
  out.mask = layer.spec.mask.sees_everything() ? "every position is visible" : layer.spec.mask.to_string();
  if (layer.width > 0) {
    const auto begin = layer.x.begin() + position * layer.width;
    out.x.assign(begin, begin + layer.width);
  }
  out.q = layer.query(head, position);
  out.k = layer.key(head, position);
  out.v = layer.value(head, position);
  const double q_norm = norm(out.q);

  // q . k, score and mask. The mask is asked through the logits: -inf where a pair is hidden.
  const std::vector<float> logits = layer.logits(head, position, 1, 0, layer.tokens);
  out.largest_score = -std::numeric_limits<double>::infinity();
  for (int64_t j = 0; j < layer.tokens; ++j) {
    const std::vector<float> key = layer.key(head, j);
    TraceKey step;
    step.position = j;
    step.visible = !std::isinf(logits[static_cast<size_t>(j)]);
    step.dot = dot(out.q, key);
    step.k_norm = norm(key);
    const double norms = q_norm * step.k_norm;
    step.cosine = norms > 0 ? step.dot / norms : 0;
    step.score = out.scale * step.dot;
    const double cap = layer.spec.softcap;
    if (cap > 0) step.score = cap * std::tanh(step.score / cap);
    if (step.visible) out.largest_score = std::max(out.largest_score, step.score);
    out.keys.push_back(step);
  }
  // Softmax.
  for (TraceKey& step : out.keys) {
    if (step.visible) out.sum_of_exp += step.weight = std::exp(step.score - out.largest_score);
  }
  const std::vector<float> weights = layer.weights_row(head, position);
  for (TraceKey& step : out.keys) {
    if (step.visible) step.weight /= out.sum_of_exp;
    out.largest_weight_difference =
        std::max(out.largest_weight_difference,
                 std::abs(step.weight - static_cast<double>(weights[static_cast<size_t>(step.position)])));
  }
  // Sum of weight times value, and the same from the kernel.
  if (layer.value_size == 0) return out;
  out.out.resize(static_cast<size_t>(layer.value_size));
  for (const TraceKey& step : out.keys) {
    const std::vector<float> value = layer.value(head, step.position);
    for (size_t c = 0; c < value.size(); ++c) out.out[c] += step.weight * static_cast<double>(value[c]);
  }
  out.kernel_out = kernel_row(layer, head, position);
  for (size_t c = 0; c < out.out.size(); ++c) {
    out.largest_difference =
        std::max(out.largest_difference, std::abs(out.out[c] - static_cast<double>(out.kernel_out[c])));
  }
  return out;
}

nlohmann::json to_json(const Trace& trace) {
  nlohmann::json keys = nlohmann::json::array();
  for (const TraceKey& key : trace.keys) {
    nlohmann::json step{{"position", key.position}, {"visible", key.visible}, {"dot", key.dot},
                        {"k_norm", key.k_norm},     {"cosine", key.cosine},   {"score", key.score},
                        {"weight", key.weight}};
    keys.push_back(std::move(step));
  }
  return {{"layer", trace.layer},
          {"head", trace.head},
          {"kv_head", trace.kv_head},
          {"position", trace.position},
          {"scale", trace.scale},
          {"mask", trace.mask},
          {"x", trace.x},
          {"x_norm", norm(trace.x)},
          {"q", trace.q},
          {"q_norm", norm(trace.q)},
          {"k", trace.k},
          {"v", trace.v},
          {"keys", std::move(keys)},
          {"largest_score", trace.largest_score},
          {"sum_of_exp", trace.sum_of_exp},
          {"out", trace.out},
          {"kernel_out", trace.kernel_out},
          {"largest_difference", trace.largest_difference},
          {"largest_weight_difference", trace.largest_weight_difference}};
}

}  // namespace regard::lens

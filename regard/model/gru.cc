#include "regard/model/gru.h"

#include <ATen/ATen.h>

#include <tuple>

#include "regard/layer/dropout.h"
#include "regard/model/rnn_attention.h"

namespace regard::model {

Gru::Gru(const std::string& name, int64_t in, int64_t width, const WeightSource& weights)
    : input_weight_(dense_matrix(weights, name + ".input.weight", 3 * width, in)),
      hidden_weight_(dense_matrix(weights, name + ".hidden.weight", 3 * width, width)),
      input_bias_(weights.vector(name + ".input.bias", 3 * width)),
      hidden_bias_(weights.vector(name + ".hidden.bias", 3 * width)) {}

at::Tensor Gru::gates(const at::Tensor& x) const {
  return at::linear(x, input_weight_, input_bias_);
}

at::Tensor Gru::step(const at::Tensor& gates, const at::Tensor& state) const {
  const at::Tensor own = at::linear(state, hidden_weight_, hidden_bias_);
  const int64_t w = width();
  const at::Tensor open = at::sigmoid(gates.narrow(-1, 0, 2 * w) + own.narrow(-1, 0, 2 * w));
  const at::Tensor proposed =
      at::tanh(at::addcmul(gates.narrow(-1, 2 * w, w), open.narrow(-1, 0, w), own.narrow(-1, 2 * w, w)));
  return proposed + open.narrow(-1, w, w) * (state - proposed);
}

BidirectionalGru::BidirectionalGru(const std::string& name, int64_t layers, int64_t in, int64_t width,
                                   const WeightSource& weights) {
  for (int64_t i = 0; i < layers; ++i) {
    for (const char* direction : {".forward", ".backward"})
      parts_.emplace_back(name + "." + std::to_string(i) + direction, i == 0 ? in : 2 * width, width,
                          weights);
  }
}

BidirectionalGru::Result BidirectionalGru::forward(const at::Tensor& x, const at::Tensor& lengths,
                                                   const at::Tensor& first, double dropout,
                                                   layer::Context& context) const {
  const auto layers = static_cast<int64_t>(parts_.size()) / 2;
  const at::Tensor begin =
      first.defined() ? first : at::zeros({2 * layers, x.size(0), parts_[0].width()}, x.options());
  Result result{x, {}};
  std::vector<at::Tensor> last;
  for (int64_t i = 0; i < layers; ++i) {
    if (i > 0) result.states = layer::dropout(result.states, dropout, context);
    result = both_ways(static_cast<size_t>(i), result.states, lengths, begin.narrow(0, 2 * i, 2));
    last.push_back(result.last);
  }
  return {result.states, at::cat(last)};
}

// Padding is left out by packing, so that the backward direction begins at each text's own end.
BidirectionalGru::Result BidirectionalGru::both_ways(size_t layer, const at::Tensor& x,
                                                     const at::Tensor& lengths,
                                                     const at::Tensor& first) const {
  std::vector<at::Tensor> parameters = parts_[2 * layer].parameters();
  for (const at::Tensor& more : parts_[2 * layer + 1].parameters()) parameters.push_back(more);
  if (!lengths.defined()) {
    const auto [states, last] = at::gru(x, first, parameters, true, 1, 0.0, false, true, true);
    return {states, last};
  }
  const at::Tensor order = lengths.argsort(/*stable=*/true, /*dim=*/0, /*descending=*/true);
  const at::Tensor back = order.argsort();
  const auto [data, sizes] =
      at::_pack_padded_sequence(x.index_select(0, order), lengths.index_select(0, order), true);
  const auto [packed, last] =
      at::gru(data, sizes, first.index_select(1, order), parameters, true, 1, 0.0, false, true);
  const at::Tensor states = std::get<0>(at::_pad_packed_sequence(packed, sizes, true, 0.0, x.size(1)));
  return {states.index_select(0, back), last.index_select(1, back)};
}

}  // namespace regard::model

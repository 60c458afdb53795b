#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "regard/layer/context.h"
#include "regard/model/weight_source.h"

namespace regard::model {

// One direction of one GRU layer in libtorch's form: gates r, z, n one above the other.
class Gru {
 public:
  // NAME.input.weight [3 width, in], NAME.hidden.weight [3 width, width], NAME.input.bias, NAME.hidden.bias.
  Gru(const std::string& name, int64_t in, int64_t width, const WeightSource& weights);

  int64_t width() const { return hidden_weight_.size(1); }
  // What a step takes of its input: [..., in] -> [..., 3 width]. Of all steps at once where they are known.
  at::Tensor gates(const at::Tensor& x) const;
  // One step: gates [B, 3 width] and state [B, width] -> the next state.
  at::Tensor step(const at::Tensor& gates, const at::Tensor& state) const;
  // The parameters as at::gru() takes them.
  std::vector<at::Tensor> parameters() const {
    return {input_weight_, hidden_weight_, input_bias_, hidden_bias_};
  }

 private:
  at::Tensor input_weight_, hidden_weight_, input_bias_, hidden_bias_;
};

// Layers of GRUs that read a text from both sides; the states of one layer, [forward; backward], are what the
// next one reads.
class BidirectionalGru {
 public:
  // NAME.0.forward.input.weight, NAME.0.backward..., NAME.1...: as Gru.
  BidirectionalGru(const std::string& name, int64_t layers, int64_t in, int64_t width,
                   const WeightSource& weights);

  struct Result {
    at::Tensor states;  // [B, S, 2 width] of the last layer, 0 on padding
    at::Tensor last;    // [2 layers, B, width]: where each direction ended
  };
  // x: [B, S, in]; lengths: [B] int64, at least 1, or undefined; first: as Result::last, undefined: 0.
  // dropout: of the states between layers.
  Result forward(const at::Tensor& x, const at::Tensor& lengths, const at::Tensor& first, double dropout,
                 layer::Context& context) const;

 private:
  Result both_ways(size_t layer, const at::Tensor& x, const at::Tensor& lengths,
                   const at::Tensor& first) const;

  std::vector<Gru> parts_;  // forward and backward of each layer
};

}  // namespace regard::model

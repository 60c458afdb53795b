// One position of one head, step by step: the definition written out with plain loops in float64, and its
// equality with what the kernel computes for the whole matrix.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "regard/lens/recording.h"

namespace regard::lens {

struct TraceKey {
  int64_t position = 0;
  bool visible = true;
  double dot = 0;     // q . k
  double k_norm = 0;  // |k|
  double cosine = 0;  // q . k = |q| |k| cosine
  double score = 0;   // scale * q . k (softcap applied where the model has one)
  double weight = 0;  // softmax over the visible keys
};

struct Trace {
  int64_t layer = 0;
  int64_t head = 0;
  int64_t kv_head = 0;
  int64_t position = 0;
  double scale = 1;
  std::string mask;            // "everything is visible", "causal(...)", ...
  std::vector<float> x;        // [width] the input of the projections; empty where it was not kept
  std::vector<float> q;        // [key_size] of this position
  std::vector<float> k;        // [key_size] of this position
  std::vector<float> v;        // [value_size]; empty where values were not kept
  std::vector<TraceKey> keys;  // every position of the text
  double largest_score = 0;
  double sum_of_exp = 0;                 // of exp(score - largest_score)
  std::vector<double> out;               // [value_size] sum of weight * v
  std::vector<float> kernel_out;         // the kernel's row of softmax(Q K^T) V
  double largest_difference = 0;         // between the two
  double largest_weight_difference = 0;  // between `weight` and the kernel's recomputed weights
};

// Throws std::invalid_argument for a layer, head or position that is not there.
Trace trace(const Recording& recording, int64_t layer, int64_t head, int64_t position);

nlohmann::json to_json(const Trace& trace);

double norm(std::span<const float> vector);

}  // namespace regard::lens

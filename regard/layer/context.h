#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "regard/kernel/parallel.h"
#include "regard/layer/recorder.h"

namespace regard::layer {

class KvCache;

// What layers add to the loss, beside what the model says.
struct LossTerms {
  double balance = 0;    // times MixtureOfExperts::Result::balance of each mixture
  double diversity = 0;  // times minus head_diversity() of each attention layer: the minus makes heads differ
  at::Tensor sum;        // of all terms so far; undefined: none

  void add(const at::Tensor& term) { sum = sum.defined() ? sum + term : term; }
};

// What a forward pass carries beside its input, passed down explicitly; no globals.
struct Context {
  KvCache* cache = nullptr;  // decoders: earlier keys and values; nullptr: none, the input is the whole text
  Recorder* recorder = nullptr;  // told of every attention call
  int64_t position = 0;          // of the input's first token
  bool training = false;
  bool checkpoint_layers = false;  // training: compute each layer again in the backward, see checkpoint.h
  LossTerms* terms = nullptr;      // training: where layers leave theirs; nullptr: not wanted
  bool row_invariant = false;      // ask for rows whose bits do not depend on batch or length
  // Of what dropout drops in this pass (dropout.h): its seed, and how many calls of dropout have been made.
  // Who makes a part of a pass again sets dropout_calls back to what it was before that part.
  uint64_t dropout_seed = 0;
  uint64_t dropout_calls = 0;
  // Called after each layer with (layers done, layers in all): progress, and the place where an interrupt is
  // noticed (it may throw).
  void (*progress)(void* self, int64_t done, int64_t all) = nullptr;
  void* progress_self = nullptr;
};

}  // namespace regard::layer

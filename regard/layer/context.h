#pragma once

#include <cstdint>
#include <vector>

#include "regard/kernel/parallel.h"
#include "regard/layer/recorder.h"

namespace regard::layer {

class KvCache;

// What a forward pass carries beside its input, passed down explicitly; no globals.
struct Context {
  KvCache* cache = nullptr;  // decoders: earlier keys and values; nullptr: none, the input is the whole text
  Recorder* recorder = nullptr;  // told of every attention call
  int64_t position = 0;          // of the input's first token
  bool training = false;
  // Of what dropout drops in this pass (dropout.h): its seed, and how many calls of dropout have been made.
  // Who makes a part of a pass again sets dropout_calls back to what it was before that part.
  uint64_t dropout_seed = 0;
  uint64_t dropout_calls = 0;
  bool row_invariant = false;  // ask for rows whose bits do not depend on batch or length
  // Called after each layer with (layers done, layers in all): progress, and the place where an interrupt is
  // noticed (it may throw).
  void (*progress)(void* self, int64_t done, int64_t all) = nullptr;
  void* progress_self = nullptr;
};

}  // namespace regard::layer

#pragma once

#include <cstdint>

namespace regard::lab {

// Sizes as they were published.
struct PublishedModel {
  const char* name;
  int64_t layers, width, heads, kv_heads, head_size, feed_forward;
  bool gated;  // SwiGLU
  int64_t vocabulary;
  bool tied;    // one table for both ends
  bool writes;  // a decoder, which keeps what it has read
};
inline constexpr PublishedModel kPublished[] = {
    {"GPT-2 small", 12, 768, 12, 12, 64, 3072, false, 50257, true, true},
    {"BERT base", 12, 768, 12, 12, 64, 3072, false, 30522, true, false},
    {"Llama 2 7B", 32, 4096, 32, 32, 128, 11008, true, 32000, false, true},
    {"Llama 3 8B", 32, 4096, 32, 8, 128, 14336, true, 128256, false, true},
    {"Llama 3 70B", 80, 8192, 64, 8, 128, 28672, true, 128256, false, true},
    {"a block of the first Transformer", 1, 512, 8, 8, 64, 2048, false, 0, true, true},
};

}  // namespace regard::lab

#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

namespace regard::bench {

// Embeds `sentences` generated sentences of 5 to 40 words with minilm, ours beside PlainBert, alternately in
// one process; both read the same ids, batched by length in the same way. One JSON object: op, sentences,
// tokens, ours_ms, peer, peer_ms, ratio (peer / ours, best of `repeats` each), largest difference of the
// vectors, lowest cosine of two. quantize: ours with Precision::int8.
nlohmann::json embed_bench(int64_t sentences, int64_t repeats, bool quantize = false);

}  // namespace regard::bench

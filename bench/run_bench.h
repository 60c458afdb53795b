#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace regard::bench {

struct RunBench {
  std::string model = "smollm2";
  int64_t prompt = 1024;  // tokens
  int64_t decode = 128;   // tokens after the first
  int64_t repeats = 3;
  int threads = 2;
  // A shell command: it gets {"model": path, "ids": [...], "decode": n, "threads": n} as JSON on standard
  // input and prints an object with "prompt_ms" and "decode_ms" (bench/peers/llamacpp.py). Empty: ourselves
  // in f32.
  std::string peer_command;
};

// Reads a prompt and decodes greedily with what `regard run` takes by default, the peer after each of our
// repeats; the best of each counts. Two rows, op "prompt" and "decode": model, precision, tokens, threads,
// ours_ms, tokens_per_second, peer, peer_ms, peer_tokens_per_second, ratio. Throws std::runtime_error when
// the peer's command fails or prints something else.
std::vector<nlohmann::ordered_json> run_bench(const RunBench& options);

}  // namespace regard::bench

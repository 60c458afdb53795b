#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace regard::bench {

// A row about linear attention: B = 1, contiguous float32 of [B, H, L, D].
struct LinearBenchCase {
  std::string op = "forward";   // forward, backward (peer: the forward of the same form), decode
  std::string form = "linear";  // linear: no denominator; elu: elu + 1 and a denominator; lightning: a decay
                                // of each head; gated: of each token; gated_feature: of each feature; delta:
                                // the delta rule
  std::string mask = "causal";  // causal, none (elu only)
  // softmax: our own softmax attention under the same mask; torch: libtorch's; forward: the forward of the
  // same form; none: no peer, ratio 0
  std::string peer = "softmax";
  int64_t heads = 8;
  int64_t length = 1024;
  int64_t features = 64;
  int threads = 1;
};

// quick: the rows that show each claim once.
std::vector<LinearBenchCase> linear_cases(bool quick);

// As run_attention_case(), with the same columns where they apply; us_per_token beside ours_ms. gflops count
// the recurrence's own products, 4 Dk Dv a token and head (6 by the delta rule), 2.5 times as many backward;
// the products inside chunks are ours to pay.
nlohmann::ordered_json run_linear_case(const LinearBenchCase& c, double seconds);

// The shortest length at which linear attention (form "linear", causal) is faster than our causal softmax,
// both measured at multiples of 32 up to 512; 0: none of them. One thread.
nlohmann::ordered_json linear_crossover(int64_t features, double seconds);

}  // namespace regard::bench

#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace regard::bench {

// One row: a form of the family beside what it stands for.
struct FamilyCase {
  std::string op;    // approximation: forward beside full attention. score: forward or backward beside the
                     // scaled dot product. head: forward and backward of a softmax head beside the full one
  std::string form;  // block, nystrom, linformer, lsh; additive; naive, safe, online; adaptive, hierarchical
  int64_t size = 0;  // positions; of a row or head: classes
  bool backward = false;
};

std::vector<FamilyCase> family_cases(bool quick);

// One thread, by its processor time: the form and its peer alternately for about `seconds` (three rounds at
// least), the best of each. Columns: op, form, pass, size, detail, ours_ms, peer, peer_ms, ratio (peer /
// ours), error. error: norm of the difference of the outputs over the peer's, where the form approximates it
// as it stands (Linformer's projections have to be learned). Queries and keys of approximations are sums of
// eight slow waves with 2 heads of 64: on noise every one of them fails. Heads: 256 tokens of width 256 whose
// classes follow Zipf's law, cutoffs by the cost model, a Huffman tree with sparse gradients.
nlohmann::ordered_json run_family_case(const FamilyCase& c, double seconds);

}  // namespace regard::bench

// The smallest use of regard::attention: softmax(q k^T / sqrt(Dk)) v with every option at its default.
#include <cstdio>
#include <vector>

#include "regard/attention/attention.h"

int main() {
  // One batch entry, one head, two queries, three keys; Dk = Dv = 2. Shapes are [B, H, L, D].
  const std::vector<float> q = {4, 0, 0, 4}, k = {2, 0, 0, 2, 0, 0}, v = {1, 0, 0, 1, 0, 0};
  const regard::attention::View<const float> queries(q.data(), {1, 1, 2, 2});
  const regard::attention::View<const float> keys(k.data(), {1, 1, 3, 2});
  const regard::attention::View<const float> values(v.data(), {1, 1, 3, 2});

  const auto [out, lse] = regard::attention::attention(queries, keys, values);
  for (int query = 0; query < 2; ++query)
    std::printf("query %d: (%.4f, %.4f), log-sum-exp %.4f\n", query, out[2 * query], out[2 * query + 1],
                lse[query]);
}

// Scores and a mask of your own, as plain functions of one pair, and the gradient through them: a query looks
// back only, and likes keys that are an even number of steps away.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "regard/attention/custom.h"

namespace ra = regard::attention;

int main() {
  constexpr int64_t kLength = 4;
  // q is 0, and so is every score: what is left is what the functions below say.
  std::vector<float> q(kLength, 0), k = {0, 1, 2, 3}, v = {1, 2, 3, 4}, out(kLength), lse(kLength),
                                    ones(kLength, 1);
  const auto view = [](std::vector<float>& x) { return ra::View<float>(x.data(), {1, 1, kLength, 1}); };

  ra::Operands operands;
  operands.q = view(q);
  operands.k = view(k);
  operands.v = view(v);
  operands.out = view(out);
  operands.lse = view(lse);

  // `auto`: the score is a float in the forward pass and a dual number in the backward.
  const auto score = [](auto s, int64_t /*batch*/, int64_t /*head*/, int64_t i, int64_t j) {
    return s + ((i - j) % 2 == 0 ? 1.0F : 0.0F);
  };
  const auto looks_back = [](int64_t /*batch*/, int64_t /*head*/, int64_t i, int64_t j) { return j <= i; };

  ra::custom_attention({}, operands, score, looks_back);
  std::vector<float> grad_q(kLength);
  ra::Gradients gradients;
  gradients.q = view(grad_q);
  ra::custom_backward({}, operands, score, looks_back, {view(ones), {}}, gradients);
  for (int64_t i = 0; i < kLength; ++i)
    std::printf("query %d: out %.4f, gradient of q %.4f\n", static_cast<int>(i), out[i], grad_q[i]);
}

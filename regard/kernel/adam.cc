#include "regard/kernel/adam.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "regard/kernel/adam.cc"
#include "regard/kernel/hwy_config.h"

#include <hwy/foreach_target.h>

#include "regard/kernel/some-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

void AdamChunk(const AdamSpan& span, int64_t begin, int64_t end) {
  const D d;
  const AdamStep& how = span.how;
  const Vec scale = hn::Set(d, how.scale), coupled = hn::Set(d, how.coupled_decay),
            keep = hn::Set(d, how.keep), beta1 = hn::Set(d, how.beta1), beta2 = hn::Set(d, how.beta2),
            rest1 = hn::Set(d, how.rest1), rest2 = hn::Set(d, how.rest2), step = hn::Set(d, how.step),
            root = hn::Set(d, 1.0F / how.root), epsilon = hn::Set(d, how.epsilon);
  each_vector(end - begin, [&](int64_t at, int64_t n) HWY_ATTR {
    const int64_t i = begin + at;
    const Vec old = load_some(span.value + i, n);
    const Vec g = hn::MulAdd(coupled, old, hn::Mul(scale, load_some(span.gradient + i, n)));
    const Vec m = hn::MulAdd(rest1, g, hn::Mul(beta1, load_some(span.first + i, n)));
    const Vec v = hn::MulAdd(hn::Mul(rest2, g), g, hn::Mul(beta2, load_some(span.second + i, n)));
    const Vec below = hn::MulAdd(hn::Sqrt(v), root, epsilon);
    store_some(m, n, span.first + i);
    store_some(v, n, span.second + i);
    store_some(hn::NegMulAdd(step, hn::Div(m, below), hn::Mul(keep, old)), n, span.value + i);
  });
}

// Squares of at most some thousand numbers, then doubles: float32 lanes alone would lose digits.
double SquaresChunk(const float* data, int64_t n) {
  const D d;
  constexpr int64_t kTogether = 1 << 11;
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kTogether) {
    const int64_t count = n - begin < kTogether ? n - begin : kTogether;
    Vec sum = hn::Zero(d);
    each_vector(count, [&](int64_t i, int64_t some) HWY_ATTR {
      const Vec x = load_some(data + begin + i, some);
      sum = hn::MulAdd(x, x, sum);
    });
    total += static_cast<double>(sum_of_lanes(d, sum));
  }
  return total;
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <algorithm>
#include <utility>

#include "regard/kernel/dispatch.h"

namespace regard::kernel {
namespace {

constexpr int64_t kChunk = int64_t{1} << 15;

// Every span cut into chunks: run(span, begin, end, number of the chunk).
template <class Spans, class Run>
void each_chunk(const Spans& spans, Parallel& parallel, Run&& run) {
  std::vector<std::pair<size_t, int64_t>> chunks;
  for (size_t s = 0; s < spans.size(); ++s)
    for (int64_t begin = 0; begin < spans[s].n; begin += kChunk) chunks.emplace_back(s, begin);
  parallel.run(static_cast<int64_t>(chunks.size()), [&](int64_t task, int) {
    const auto [s, begin] = chunks[static_cast<size_t>(task)];
    run(spans[s], begin, std::min(spans[s].n, begin + kChunk), static_cast<size_t>(task));
  });
}

}  // namespace

HWY_EXPORT(AdamChunk);
HWY_EXPORT(SquaresChunk);

void adam(const std::vector<AdamSpan>& spans, Parallel& parallel) {
  const auto chunk = REGARD_DISPATCH(AdamChunk);
  each_chunk(spans, parallel,
             [&](const AdamSpan& span, int64_t begin, int64_t end, size_t) { chunk(span, begin, end); });
}

double sum_of_squares(const std::vector<ConstSpan>& spans, Parallel& parallel) {
  const auto squares = REGARD_DISPATCH(SquaresChunk);
  size_t chunks = 0;
  for (const ConstSpan& span : spans) chunks += static_cast<size_t>((span.n + kChunk - 1) / kChunk);
  std::vector<double> parts(chunks);
  each_chunk(spans, parallel, [&](const ConstSpan& span, int64_t begin, int64_t end, size_t task) {
    parts[task] = squares(span.data + begin, end - begin);
  });
  double total = 0;
  for (const double part : parts) total += part;
  return total;
}

}  // namespace regard::kernel

#endif  // HWY_ONCE

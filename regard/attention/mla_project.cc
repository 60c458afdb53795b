#include "regard/attention/mla_project.h"

#include <algorithm>
#include <vector>

namespace regard::attention {
namespace {

using kernel::View;

constexpr int64_t kLanes = 8;      // partial sums of a product: they vectorise, and they round less
constexpr int64_t kTaskRows = 32;  // rows of a task
constexpr int64_t kTogether = 4;   // rows that share a row of weights while it is at hand

// Tasks of some rows of one batch entry and head.
template <class F>
void for_rows(const View<float>& out, kernel::Parallel& parallel, F&& run) {
  const int64_t pieces = (out.size[2] + kTaskRows - 1) / kTaskRows;
  parallel.run(out.size[0] * out.size[1] * pieces, [&](int64_t task, int /*worker*/) {
    const int64_t begin = task % pieces * kTaskRows;
    run(task / pieces / out.size[1], task / pieces % out.size[1], begin,
        std::min(begin + kTaskRows, out.size[2]));
  });
}

template <int64_t kCount>
void dots(const float* weights, const float* const* in, int64_t n, float* sums) {
  float lanes[kCount][kLanes] = {};
  int64_t m = 0;
  for (; m + kLanes <= n; m += kLanes)
    for (int64_t r = 0; r < kCount; ++r)
      for (int64_t l = 0; l < kLanes; ++l) lanes[r][l] += weights[m + l] * in[r][m + l];
  for (int64_t r = 0; r < kCount; ++r) {
    float sum = 0.0F;
    for (int64_t l = 0; l < kLanes; ++l) sum += lanes[r][l];
    for (int64_t at = m; at < n; ++at) sum += weights[at] * in[r][at];
    sums[r] = sum;
  }
}

}  // namespace

void project(const View<const float>& weights, const View<const float>& in, const View<float>& out,
             kernel::Parallel& parallel) {
  const int64_t n = weights.size[2];
  const int64_t m = weights.size[3];
  for_rows(out, parallel, [&](int64_t b, int64_t h, int64_t begin, int64_t end) {
    std::vector<float> rows(static_cast<size_t>(kTogether * m));
    for (int64_t i = begin; i < end; i += kTogether) {
      const int64_t count = std::min(kTogether, end - i);
      const float* at[kTogether] = {};
      for (int64_t r = 0; r < count; ++r) {
        float* row = rows.data() + r * m;
        const int64_t head = in.size[1] == 1 ? 0 : h;
        for (int64_t f = 0; f < m; ++f) row[f] = in(b, head, i + r, f);
        at[r] = row;
      }
      for (int64_t k = 0; k < n; ++k) {
        float sums[kTogether];
        if (count == kTogether) {
          dots<kTogether>(weights.at(0, h, k), at, m, sums);
        } else {
          for (int64_t r = 0; r < count; ++r) dots<1>(weights.at(0, h, k), at + r, m, sums + r);
        }
        for (int64_t r = 0; r < count; ++r) out(b, h, i + r, k) = sums[r];
      }
    }
  });
}

void project_transposed(const View<const float>& weights, const View<const float>& in, const View<float>& out,
                        kernel::Parallel& parallel) {
  const int64_t n = weights.size[2];
  const int64_t m = weights.size[3];
  for_rows(out, parallel, [&](int64_t b, int64_t h, int64_t begin, int64_t end) {
    std::vector<float> sum(static_cast<size_t>(m));
    for (int64_t i = begin; i < end; ++i) {
      std::fill(sum.begin(), sum.end(), 0.0F);
      for (int64_t k = 0; k < n; ++k) {
        const float x = in(b, h, i, k);
        const float* row = weights.at(0, h, k);
        for (int64_t f = 0; f < m; ++f) sum[static_cast<size_t>(f)] += x * row[f];
      }
      for (int64_t f = 0; f < m; ++f) out(b, h, i, f) = sum[static_cast<size_t>(f)];
    }
  });
}

}  // namespace regard::attention

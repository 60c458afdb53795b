#include "regard/attention/merge.h"

#include <stdexcept>
#include <vector>

#include "regard/kernel/merge.h"

namespace regard::attention {
namespace {

constexpr int64_t kTaskRows = 64;

void check_parts(std::span<const PartialResult> parts, const View<float>& out, const View<float>& lse) {
  if (parts.empty()) throw std::invalid_argument("merge: there are no parts; allowed: one or more");
  const kernel::Extents row{out.size[0], out.size[1], out.size[2], 1};
  for (const PartialResult& part : parts) {
    if (part.out.size != out.size || part.lse.size != row || lse.size != row) {
      throw std::invalid_argument(
          "merge: the sizes of a part differ; allowed: out as the merged one, lse [B, H, L, 1]");
    }
    if (part.out.stride[3] != 1 && out.size[3] > 1) {
      throw std::invalid_argument("merge: a part has features apart; allowed: feature stride 1");
    }
  }
}

}  // namespace

void merge(std::span<const PartialResult> parts, View<float> out, View<float> lse,
           kernel::Parallel& parallel) {
  check_parts(parts, out, lse);
  const int64_t B = out.size[0];
  const int64_t H = out.size[1];
  const int64_t L = out.size[2];
  const int64_t features = out.size[3];
  const int64_t rows = B * H * L;
  std::vector<std::vector<float>> totals(static_cast<size_t>(parallel.workers()),
                                         std::vector<float>(features));
  const auto count = static_cast<int64_t>(parts.size());
  parallel.run((rows + kTaskRows - 1) / kTaskRows, [&](int64_t task, int worker) {
    float* total = totals[worker].data();
    for (int64_t row = task * kTaskRows; row < std::min(rows, (task + 1) * kTaskRows); ++row) {
      const int64_t b = row / (H * L);
      const int64_t h = row / L % H;
      const int64_t i = row % L;
      const auto part = [&](int64_t n) {
        const double part_lse = parts[n].lse(b, h, i, 0);
        return kernel::PartialRow{part_lse, part_lse == -HUGE_VAL ? 0.0 : 1.0, parts[n].out.at(b, h, i)};
      };
      const kernel::MergedRow merged = kernel::merge_row(0, count, part, features, total);
      const bool empty = merged.sum == 0.0;
      const double factor = empty ? 0.0 : 1.0 / merged.sum;
      for (int64_t f = 0; f < features; ++f) {
        out(b, h, i, f) = empty ? 0.0F : static_cast<float>(static_cast<double>(total[f]) * factor);
      }
      lse(b, h, i, 0) = empty ? -HUGE_VALF : static_cast<float>(merged.maximum + std::log(merged.sum));
    }
  });
}

}  // namespace regard::attention

#include "regard/kernel/rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace regard::kernel {
namespace {

constexpr double kLn2 = std::numbers::ln2;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

void add_span(const Span& span, int64_t begin, int64_t end, int64_t width, LiveTile* live,
              PanelRange& range) {
  const int64_t first = (std::max(span.begin, begin) - begin) / width;
  const int64_t last = (std::min(span.end, end) - begin + width - 1) / width;
  range.begin = std::min(range.begin, first);
  range.end = std::max(range.end, last);
  for (int64_t panel = first; panel < last; ++panel) {
    const int64_t key = begin + panel * width;
    const auto from = static_cast<uint8_t>(std::max<int64_t>(span.begin - key, 0));
    const auto to = static_cast<uint8_t>(std::min(std::min(span.end, end) - key, width));
    LiveTile& tile = live[panel];
    if (tile.begin == tile.end) {
      tile = {from, to, span.full, 0};
    } else {
      // Spans come sorted. Where they leave a gap, the mask's bits know it.
      tile.full = tile.full && span.full && tile.end == from;
      tile.end = to;
    }
  }
}

}  // namespace

PanelRange live_panels(const Forward& p, int64_t batch, int64_t head, int64_t row, int64_t count,
                       int64_t begin, int64_t end, int64_t width, LiveTile* live) {
  const int64_t panels = (end - begin + width - 1) / width;
  for (int64_t panel = 0; panel < panels; ++panel) live[panel] = {0, 0, false, 0};
  PanelRange range{panels, 0};
  int64_t from = begin;
  if (p.pages) {
    from = std::max(begin, p.pages.begin(batch));
    end = std::min(end, p.pages.end(batch));
    if (from >= end) return range;
  }
  if (!p.mask) {
    add_span({from, end, true}, begin, end, width, live, range);
    return range;
  }
  while (from < end) {
    const Span span = p.mask.next_span(p.mask.self, batch, head, row, count, from);
    if (span.begin >= span.end || span.begin >= end) break;
    add_span(span, begin, end, width, live, range);
    from = span.end;
  }
  return range;
}

bool sees(const Forward& p, int64_t batch, int64_t head, int64_t row, int64_t key) {
  if (p.mask) {
    uint64_t word = 0;
    p.mask.bits(p.mask.self, batch, head, row, 1, key, 1, &word);
    if ((word & 1) == 0) return false;
  }
  return !p.bias || p.bias(batch, head, row, key) != -kInfinity;
}

float element(const ConstAnyView& view, int64_t batch, int64_t head, int64_t position, int64_t feature) {
  return with_type(view.dtype, [&](auto type) {
    return to_float(view.as<const decltype(type)>()(batch, head, position, feature));
  });
}

float close_row(const Forward& p, int64_t batch, int64_t head, int64_t row, float maximum, float sum) {
  double top = static_cast<double>(maximum) * kLn2;
  double total = sum;
  double factor = 1.0;
  if (p.sinks) {
    const double sink = p.sinks(batch, head, 0, 0);
    if (sink > top) {  // also when the row is empty
      factor = std::exp(top - sink);
      total = total * factor + 1.0;
      top = sink;
    } else if (sink > -kInfinity) {
      total += std::exp(sink - top);
    }
  }
  const bool empty = total == 0.0;
  if (p.lse)
    p.lse(batch, head, row, 0) =
        empty ? -kInfinity : static_cast<float>(top + std::log(static_cast<float>(total)));
  return empty || factor == 0.0 ? 0.0F : static_cast<float>(factor / total);
}

}  // namespace regard::kernel

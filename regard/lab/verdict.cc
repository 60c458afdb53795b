#include "regard/lab/verdict.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <vector>

namespace regard::lab {

const char* name(Verdict verdict) {
  switch (verdict) {
    case Verdict::confirmed:
      return "confirmed";
    case Verdict::refuted:
      return "refuted";
    case Verdict::not_decided:
      return "not decided";
  }
  return "";
}

Verdict all_of(std::span<const Verdict> parts) {
  Verdict all = parts.empty() ? Verdict::not_decided : Verdict::confirmed;
  for (const Verdict part : parts) {
    if (part == Verdict::refuted) return part;
    if (part == Verdict::not_decided) all = part;
  }
  return all;
}

Spread spread(std::span<const double> values) {
  if (values.empty()) throw std::invalid_argument("spread: no values");
  Spread out;
  out.seeds = static_cast<int64_t>(values.size());
  for (const double value : values) out.mean += value / static_cast<double>(values.size());
  double squares = 0;
  for (const double value : values) squares += (value - out.mean) * (value - out.mean);
  if (values.size() > 1) out.deviation = std::sqrt(squares / static_cast<double>(values.size() - 1));
  return out;
}

double median(std::span<const double> values) {
  if (values.empty()) throw std::invalid_argument("median: no values");
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

std::string shown(const Spread& spread, int digits) {
  char text[80];
  if (spread.seeds < 2) {
    std::snprintf(text, sizeof text, "%.*f", digits, spread.mean);
  } else {
    std::snprintf(text, sizeof text, "%.*f +- %.*f", digits, spread.mean, digits, spread.deviation);
  }
  return text;
}

Verdict larger(std::span<const double> a, std::span<const double> b) {
  const Spread one = spread(a);
  const Spread other = spread(b);
  if (one.seeds < 2 || other.seeds < 2) return Verdict::not_decided;
  const double difference = one.mean - other.mean;
  const double both = one.deviation + other.deviation;
  if (!(std::abs(difference) > both)) return Verdict::not_decided;  // a NaN decides nothing
  return decided(difference > 0);
}

Verdict alike(std::span<const double> a, std::span<const double> b) {
  if (a.size() < 2 || b.size() < 2) return Verdict::not_decided;
  return decided(larger(a, b) == Verdict::not_decided);
}

Verdict near(double measured, double stated, double tolerance) {
  return decided(std::abs(measured - stated) <= tolerance);
}

}  // namespace regard::lab

// From numbers to what may be said of a claim.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace regard::lab {

enum class Verdict : uint8_t { confirmed, refuted, not_decided };
const char* name(Verdict verdict);  // "not decided"

inline Verdict opposite(Verdict verdict) {
  if (verdict == Verdict::not_decided) return verdict;
  return verdict == Verdict::confirmed ? Verdict::refuted : Verdict::confirmed;
}
// For what is computed without chance.
inline Verdict decided(bool holds) {
  return holds ? Verdict::confirmed : Verdict::refuted;
}
// All must hold; one that is refuted refutes the whole.
Verdict all_of(std::span<const Verdict> parts);

// Mean and spread (the standard deviation with n - 1 below) over seeds.
struct Spread {
  double mean = 0;
  double deviation = 0;
  int64_t seeds = 0;
};
// Throws std::invalid_argument without values.
Spread spread(std::span<const double> values);
double median(std::span<const double> values);
std::string shown(const Spread& spread, int digits);  // "0.93 +- 0.02"

// "a is larger than b": decided only where mean +- deviation of the two do not touch, and only over two seeds
// or more each; a difference inside the spread is not decided.
Verdict larger(std::span<const double> a, std::span<const double> b);
// "a and b are equally good": confirmed where neither is larger, refuted where one is, and not decided over
// fewer than two seeds.
Verdict alike(std::span<const double> a, std::span<const double> b);
// Whether a measured number is the stated one.
Verdict near(double measured, double stated, double tolerance);

}  // namespace regard::lab

#include "regard/lens/mixture.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace regard::lens {

bool is_sink(std::span<const Unit> units, int64_t unit, bool causal) {
  return units[static_cast<size_t>(unit)].special || (causal && unit == 0);
}

Mixture mixture(std::span<const float> row, std::span<const Unit> units, bool causal, int64_t terms,
                float smallest) {
  std::vector<int64_t> order(units.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return row[static_cast<size_t>(a)] > row[static_cast<size_t>(b)];
  });
  Mixture out;
  double rest = 0;
  double sinks = 0;
  for (const int64_t unit : order) {
    const float weight = row[static_cast<size_t>(unit)];
    if (is_sink(units, unit, causal)) {
      if (weight > 0) out.sinks.push_back({unit, weight});
      sinks += weight;
    } else if (static_cast<int64_t>(out.terms.size()) < terms && weight >= smallest) {
      out.terms.push_back({unit, weight});
    } else {
      rest += weight;
      ++out.rest_units;
    }
  }
  out.sink_weight = static_cast<float>(sinks);
  out.rest = static_cast<float>(rest);
  return out;
}

std::vector<int> hundredths(const Mixture& mixture) {
  std::vector<int> out;
  const auto rounded = [](float weight) { return static_cast<int>(std::lround(weight * 100)); };
  for (const MixtureTerm& term : mixture.terms) out.push_back(rounded(term.weight));
  out.push_back(rounded(mixture.sink_weight));
  out.push_back(0);
  int rest = 100 - std::accumulate(out.begin(), out.end(), 0);
  // Roundings can add up to more than 1, or leave a hundredth over where nothing is left.
  const bool nothing_left = mixture.rest_units == 0 || mixture.rest <= 0;
  while (rest < 0 || (rest > 0 && nothing_left)) {
    auto largest = std::max_element(out.begin(), out.end() - 1);
    *largest += rest < 0 ? -1 : 1;
    rest += rest < 0 ? 1 : -1;
  }
  out.back() = rest;
  return out;
}

}  // namespace regard::lens

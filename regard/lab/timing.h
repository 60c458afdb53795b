#pragma once

#include <chrono>
#include <vector>

namespace regard::lab {

// Of seven calls, after one that does not count.
template <class Run>
std::vector<double> milliseconds(Run&& run) {
  std::vector<double> out;
  for (int repeat = 0; repeat < 8; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    if (repeat > 0)
      out.push_back(
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  return out;
}

}  // namespace regard::lab

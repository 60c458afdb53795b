#include "bench/machine.h"

#include <algorithm>
#include <ctime>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/machine.cc"
#include "regard/kernel/hwy_config.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace regard::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kChains = 12;  // independent sums: covers the latency of a multiply-add

// Returns the number of floating-point operations done; the result of the sums goes to *sink.
HWY_NOINLINE double MultiplyAdd(long long rounds, float* sink) {
  const hn::ScalableTag<float> d;
  using Vec = hn::Vec<decltype(d)>;
  Vec acc[kChains];
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) acc[i] = hn::Set(d, static_cast<float>(i));
  const Vec a = hn::Set(d, *sink * 0.0F + 0.999F);
  const Vec b = hn::Set(d, 1e-3F);
  for (long long round = 0; round < rounds; ++round)
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) acc[i] = hn::MulAdd(acc[i], a, b);
  Vec sum = acc[0];
  for (int i = 1; i < kChains; ++i) sum = hn::Add(sum, acc[i]);
  *sink = hn::GetLane(sum);
  return 2.0 * kChains * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
}

HWY_NOINLINE float Sum(const float* from, size_t count) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  auto a = hn::Zero(d);
  auto b = hn::Zero(d);
  auto c = hn::Zero(d);
  auto e = hn::Zero(d);
  for (size_t i = 0; i + 4 * lanes <= count; i += 4 * lanes) {
    a = hn::Add(a, hn::LoadU(d, from + i));
    b = hn::Add(b, hn::LoadU(d, from + i + lanes));
    c = hn::Add(c, hn::LoadU(d, from + i + 2 * lanes));
    e = hn::Add(e, hn::LoadU(d, from + i + 3 * lanes));
  }
  return hn::GetLane(hn::Add(hn::Add(a, b), hn::Add(c, e)));
}

}  // namespace regard::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "regard/kernel/dispatch.h"

namespace regard::bench {
namespace {

double seconds_of(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

template <class F>
double best_of(int repeats, bool alone, F&& f) {
  double best = 1e30;
  for (int i = 0; i < repeats; ++i) {
    const double start = alone ? thread_seconds() : wall_seconds();
    f();
    best = std::min(best, (alone ? thread_seconds() : wall_seconds()) - start);
  }
  return best;
}

}  // namespace

HWY_EXPORT(MultiplyAdd);
HWY_EXPORT(Sum);

double thread_seconds() {
  return seconds_of(CLOCK_THREAD_CPUTIME_ID);
}

double wall_seconds() {
  return seconds_of(CLOCK_MONOTONIC);
}

Machine measure_machine(kernel::Parallel& parallel) {
  constexpr long long kRounds = 20'000;
  constexpr size_t kFloats = size_t{16} << 20;
  static const std::vector<float> buffer(kFloats, 1.0F);
  const bool alone = parallel.workers() == 1;
  const int64_t tasks = int64_t{8} * parallel.workers();
  std::vector<double> operations(static_cast<size_t>(tasks));
  std::vector<float> sinks(static_cast<size_t>(tasks));
  Machine machine{};
  const double compute = best_of(3, alone, [&] {
    parallel.run(tasks, [&](int64_t task, int) {
      const auto i = static_cast<size_t>(task);
      operations[i] = REGARD_DISPATCH(MultiplyAdd)(kRounds, &sinks[i]);
    });
  });
  double total = 0;
  for (const double n : operations) total += n;
  machine.peak_gflops = total / compute * 1e-9;
  const double read = best_of(3, alone, [&] {
    parallel.run(tasks, [&](int64_t task, int) {
      const size_t share = kFloats / static_cast<size_t>(tasks);
      sinks[static_cast<size_t>(task)] =
          REGARD_DISPATCH(Sum)(buffer.data() + static_cast<size_t>(task) * share, share);
    });
  });
  machine.read_gbytes = static_cast<double>(kFloats) * sizeof(float) / read * 1e-9;
  return machine;
}

}  // namespace regard::bench

#endif  // HWY_ONCE

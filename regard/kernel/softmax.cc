#include "regard/kernel/softmax.h"

#include <cmath>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "regard/kernel/softmax.cc"
#include "regard/kernel/hwy_config.h"

#include <hwy/foreach_target.h>

#include "regard/kernel/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

// Bytes of rows that make a task worth its start.
constexpr int64_t kTaskBytes = 1 << 16;
// Columns that are summed in one go: keeps the rounding error of long rows near that of a short one.
constexpr int64_t kSumColumns = 512;

constexpr int64_t kStep = 8;  // vectors at once: one exponential alone is a chain of some 40 cycles

HWY_INLINE int64_t bytes_of(int64_t numbers) {
  return numbers * static_cast<int64_t>(sizeof(float));
}

// run(vectors) for all of x[begin, end), kStep vectors at a time; the last ones are filled up with `fill`.
template <class Run>
HWY_INLINE void each_vectors(const float* x, int64_t begin, int64_t end, float fill, SoftmaxTraffic& traffic,
                             Run&& run) {
  traffic.bytes_read += bytes_of(end - begin);
  const D d;
  Vec v[kStep];
  int64_t i = begin;
  for (; i + kStep * kLanes <= end; i += kStep * kLanes) {
#pragma GCC unroll 8
    for (int64_t n = 0; n < kStep; ++n) v[n] = hn::LoadU(d, x + i + n * kLanes);
    run(v);
  }
  if (i == end) return;
  HWY_ALIGN float rest[kStep * kLanes];
  for (int64_t n = 0; n < kStep * kLanes; ++n) rest[n] = i + n < end ? x[i + n] : fill;
#pragma GCC unroll 8
  for (int64_t n = 0; n < kStep; ++n) v[n] = hn::Load(d, rest + n * kLanes);
  run(v);
}

// to = what change(vectors) leaves, element for element.
template <class Change>
HWY_INLINE void map_vectors(const float* x, int64_t columns, float* to, SoftmaxTraffic& traffic,
                            Change&& change) {
  traffic.bytes_read += bytes_of(columns);
  traffic.bytes_written += bytes_of(columns);
  const D d;
  Vec v[kStep];
  int64_t i = 0;
  for (; i + kStep * kLanes <= columns; i += kStep * kLanes) {
#pragma GCC unroll 8
    for (int64_t n = 0; n < kStep; ++n) v[n] = hn::LoadU(d, x + i + n * kLanes);
    change(v);
#pragma GCC unroll 8
    for (int64_t n = 0; n < kStep; ++n) hn::StoreU(v[n], d, to + i + n * kLanes);
  }
  if (i == columns) return;
  HWY_ALIGN float rest[kStep * kLanes];
  for (int64_t n = 0; n < kStep * kLanes; ++n) rest[n] = i + n < columns ? x[i + n] : 0.0F;
#pragma GCC unroll 8
  for (int64_t n = 0; n < kStep; ++n) v[n] = hn::Load(d, rest + n * kLanes);
  change(v);
#pragma GCC unroll 8
  for (int64_t n = 0; n < kStep; ++n) hn::Store(v[n], d, rest + n * kLanes);
  for (int64_t n = 0; i + n < columns; ++n) to[i + n] = rest[n];
}

HWY_INLINE Vec largest(const Vec (&v)[kStep]) {
  return hn::Max(hn::Max(hn::Max(v[0], v[1]), hn::Max(v[2], v[3])),
                 hn::Max(hn::Max(v[4], v[5]), hn::Max(v[6], v[7])));
}

HWY_INLINE Vec sum_of(const Vec (&v)[kStep]) {
  return hn::Add(hn::Add(hn::Add(v[0], v[1]), hn::Add(v[2], v[3])),
                 hn::Add(hn::Add(v[4], v[5]), hn::Add(v[6], v[7])));
}

struct RowSum {
  float maximum;
  double sum;  // of exp(x - maximum)
};

// Highway's Max may lose a NaN; the sum of exp(x - maximum) has it all the same.
HWY_INLINE float row_maximum(const float* x, int64_t columns, SoftmaxTraffic& traffic) {
  const D d;
  Vec maximum = hn::Set(d, -HUGE_VALF);
  each_vectors(x, 0, columns, -HUGE_VALF, traffic,
               [&](const Vec(&v)[kStep]) HWY_ATTR { maximum = hn::Max(maximum, largest(v)); });
  return max_of_lanes(d, maximum);
}

// exp(x - shift); infinite above 88, which only the naive way meets.
HWY_INLINE void exp_from(D d, Vec shift, Vec (&x)[kStep]) {
  Vec power[kStep];
#pragma GCC unroll 8
  for (int64_t n = 0; n < kStep; ++n) x[n] = power[n] = hn::Mul(hn::Sub(x[n], shift), hn::Set(d, kLog2e));
  exp2(d, x);
#pragma GCC unroll 8
  for (int64_t n = 0; n < kStep; ++n)
    x[n] = hn::IfThenElse(hn::Gt(power[n], hn::Set(d, 127.0F)), hn::Set(d, HUGE_VALF), x[n]);
}

HWY_INLINE double row_sum(const float* x, int64_t columns, float shift, SoftmaxTraffic& traffic) {
  const D d;
  double total = 0.0;
  for (int64_t begin = 0; begin < columns; begin += kSumColumns) {
    Vec sum = hn::Zero(d);
    each_vectors(x, begin, HWY_MIN(begin + kSumColumns, columns), -HUGE_VALF, traffic,
                 [&](Vec(&v)[kStep]) HWY_ATTR {
                   exp_from(d, hn::Set(d, shift), v);
                   sum = hn::Add(sum, sum_of(v));
                 });
    total += static_cast<double>(sum_of_lanes(d, sum));
  }
  return total;
}

// Adds (maximum, sum) of other columns; the online recurrence.
HWY_INLINE void add_columns(RowSum& row, float maximum, double sum) {
  if (sum == 0.0) return;
  const float higher = HWY_MAX(row.maximum, maximum);
  const auto factor = [&](float from) {
    return std::exp(static_cast<double>(from) - static_cast<double>(higher));
  };
  row.sum = (row.sum == 0.0 ? 0.0 : row.sum * factor(row.maximum)) + sum * factor(maximum);
  row.maximum = higher;
}

// One pass: of each lane its own running maximum and sum, merged after every kSumColumns: first the lanes by
// one exponential of them all, then the block into the row.
HWY_INLINE RowSum online_sum(const float* x, int64_t columns, SoftmaxTraffic& traffic) {
  const D d;
  const Vec nothing = hn::Set(d, -HUGE_VALF);
  RowSum row{-HUGE_VALF, 0.0};
  for (int64_t begin = 0; begin < columns; begin += kSumColumns) {
    Vec maximum = nothing;
    Vec sum = hn::Zero(d);
    each_vectors(x, begin, HWY_MIN(begin + kSumColumns, columns), -HUGE_VALF, traffic,
                 [&](Vec(&v)[kStep]) HWY_ATTR {
                   const Vec higher = hn::Max(maximum, largest(v));
                   // -infinity minus itself: no sum yet, or none to add.
                   const Vec safe = hn::IfThenElse(hn::Eq(higher, nothing), hn::Zero(d), higher);
                   const Vec kept = exp2(d, hn::Mul(hn::Sub(maximum, safe), hn::Set(d, kLog2e)));
                   exp_from(d, safe, v);
                   sum = hn::MulAdd(sum, kept, sum_of(v));
                   maximum = higher;
                 });
    const float highest = max_of_lanes(d, maximum);
    const Vec shift = hn::Set(d, highest == -HUGE_VALF ? 0.0F : highest);
    const Vec kept = exp2(d, hn::Mul(hn::Sub(maximum, shift), hn::Set(d, kLog2e)));
    add_columns(row, highest, static_cast<double>(sum_of_lanes(d, hn::Mul(sum, kept))));
  }
  return row;
}

void softmax_row(SoftmaxWay way, bool log, int64_t columns, const float* x, float* out,
                 SoftmaxTraffic& traffic) {
  const D d;
  RowSum row{0.0F, 0.0};
  if (way == SoftmaxWay::online) {
    row = online_sum(x, columns, traffic);
  } else {
    if (way == SoftmaxWay::safe) row.maximum = row_maximum(x, columns, traffic);
    row.sum = row_sum(x, columns, row.maximum == -HUGE_VALF ? 0.0F : row.maximum, traffic);
  }
  const Vec shift = hn::Set(d, row.maximum == -HUGE_VALF ? 0.0F : row.maximum);
  if (log) {
    // Two steps: the difference to the maximum is exact where it matters.
    const Vec rest = hn::Set(d, row.sum == 0.0 ? 0.0F : static_cast<float>(std::log(row.sum)));
    map_vectors(x, columns, out, traffic, [&](Vec(&v)[kStep]) HWY_ATTR {
#pragma GCC unroll 8
      for (int64_t n = 0; n < kStep; ++n) v[n] = hn::Sub(hn::Sub(v[n], shift), rest);
    });
  } else {
    const Vec factor = hn::Set(d, row.sum == 0.0 ? 0.0F : static_cast<float>(1.0 / row.sum));
    map_vectors(x, columns, out, traffic, [&](Vec(&v)[kStep]) HWY_ATTR {
      exp_from(d, shift, v);
#pragma GCC unroll 8
      for (int64_t n = 0; n < kStep; ++n) v[n] = hn::Mul(v[n], factor);
    });
  }
}

HWY_INLINE double dot_or_sum(const float* y, const float* grad, int64_t columns) {
  const D d;
  double total = 0.0;
  for (int64_t begin = 0; begin < columns; begin += kSumColumns) {
    const int64_t end = HWY_MIN(begin + kSumColumns, columns);
    Vec sum = hn::Zero(d);
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      const Vec g = hn::LoadU(d, grad + i);
      sum = y == nullptr ? hn::Add(sum, g) : hn::MulAdd(hn::LoadU(d, y + i), g, sum);
    }
    total += static_cast<double>(sum_of_lanes(d, sum));
    for (; i < end; ++i)
      total += static_cast<double>(grad[i]) * (y == nullptr ? 1.0 : static_cast<double>(y[i]));
  }
  return total;
}

void softmax_backward_row(bool log, int64_t columns, const float* y, const float* grad, float* to) {
  const D d;
  const auto sum = static_cast<float>(dot_or_sum(log ? nullptr : y, grad, columns));
  const Vec s = hn::Set(d, sum);
  int64_t i = 0;
  for (; i + kLanes <= columns; i += kLanes) {
    const Vec value = hn::LoadU(d, y + i);
    const Vec g = hn::LoadU(d, grad + i);
    hn::StoreU(log ? hn::NegMulAdd(exp2(d, hn::Mul(value, hn::Set(d, kLog2e))), s, g)
                   : hn::Mul(value, hn::Sub(g, s)),
               d, to + i);
  }
  for (; i < columns; ++i) to[i] = log ? grad[i] - std::exp(y[i]) * sum : y[i] * (grad[i] - sum);
}

template <class Row>
void each_row(const Rows2d& rows, Parallel& parallel, Row&& row) {
  const int64_t step = HWY_MAX(kTaskBytes / HWY_MAX(rows.columns * 4, int64_t{1}), int64_t{1});
  parallel.run((rows.rows + step - 1) / step, [&](int64_t task, int worker) HWY_ATTR {
    for (int64_t i = task * step; i < HWY_MIN((task + 1) * step, rows.rows); ++i)
      row(i * rows.stride, worker);
  });
}

struct alignas(64) WorkerTraffic : SoftmaxTraffic {};  // a cache line each

SoftmaxTraffic Softmax(SoftmaxWay way, bool log, const Rows2d& rows, const float* x, float* out,
                       Parallel& parallel) {
  std::vector<WorkerTraffic> counted(static_cast<size_t>(parallel.workers()));
  each_row(rows, parallel, [&](int64_t at, int worker) HWY_ATTR {
    softmax_row(way, log, rows.columns, x + at, out + at, counted[static_cast<size_t>(worker)]);
  });
  SoftmaxTraffic all;
  for (const SoftmaxTraffic& one : counted) {
    all.bytes_read += one.bytes_read;
    all.bytes_written += one.bytes_written;
  }
  return all;
}

void SoftmaxBackward(bool log, const Rows2d& rows, const float* y, const float* grad, float* grad_x,
                     Parallel& parallel) {
  each_row(rows, parallel, [&](int64_t at, int /*worker*/) HWY_ATTR {
    softmax_backward_row(log, rows.columns, y + at, grad + at, grad_x + at);
  });
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "regard/kernel/dispatch.h"

namespace regard::kernel {

HWY_EXPORT(Softmax);
HWY_EXPORT(SoftmaxBackward);

SoftmaxTraffic softmax(SoftmaxWay way, bool log, const Rows2d& rows, const float* x, float* out,
                       Parallel& parallel) {
  if (rows.rows <= 0 || rows.columns <= 0) return {};
  return REGARD_DISPATCH(Softmax)(way, log, rows, x, out, parallel);
}

void softmax_backward(bool log, const Rows2d& rows, const float* y, const float* grad, float* grad_x,
                      Parallel& parallel) {
  if (rows.rows <= 0 || rows.columns <= 0) return;
  REGARD_DISPATCH(SoftmaxBackward)(log, rows, y, grad, grad_x, parallel);
}

}  // namespace regard::kernel

#endif  // HWY_ONCE

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "regard/kernel/additive_backward.cc"
#include "regard/kernel/hwy_config.h"

#include <hwy/foreach_target.h>

#include "regard/kernel/additive-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

// Scratch of a worker: keys [begin, end) of one key/value head, and one tile of query rows at a time.
struct AdditiveScratch {
  float* keys;         // panels [2][Dk][kCols]
  float* values;       // panels [Dv][kCols]
  float* grad_k;       // panels [Dk][kCols]
  float* grad_v;       // [keys][dv]
  float* rows;         // [Dk][kRows], then exponentials
  float* hidden;       // [Dk][kRows][kCols]: r
  float* grad_q;       // [Dk][kRows][kLanes]: sums of ds r (1 - r)
  float* grad_vector;  // [Dk][kLanes]: sums of ds r
  float* grad_out;     // [Dv / kCols][kRows][kCols]
  float* weights;      // [kRows][kCols]
  float* grads;        // [kRows][kCols]
  float* staging;
  float* lse;  // [kRows] each
  float* lse_rest;
  float* delta;
  LiveTile* live;

  AdditiveScratch(const AdditiveBackwardLayout& layout, std::byte* at) {
    Carver carve(at);
    keys = carve.take<float>(layout.chunk_keys * 2 * layout.inputs);
    grad_k = carve.take<float>(layout.chunk_keys * layout.inputs);
    values = carve.take<float>(layout.chunk_keys * layout.dv);
    grad_v = carve.take<float>(layout.chunk_keys * layout.dv);
    rows = carve.take<float>(layout.row_floats);
    hidden = carve.take<float>(layout.tile_floats);
    grad_q = carve.take<float>(layout.inputs * 12 * kMaxLanes);
    grad_vector = carve.take<float>(layout.inputs * kMaxLanes);
    grad_out = carve.take<float>(12 * layout.dv);
    weights = carve.take<float>(12 * kMaxCols);
    grads = carve.take<float>(12 * kMaxCols);
    lse = carve.take<float>(kMaxLanes);
    lse_rest = carve.take<float>(kMaxLanes);
    delta = carve.take<float>(kMaxLanes);
    staging = carve.take<float>(kMaxCols * round_up(HWY_MAX(layout.inputs, layout.dv), kMaxLanes));
    at += round_up((reinterpret_cast<std::byte*>(staging) - at) +
                       kMaxCols * round_up(HWY_MAX(layout.inputs, layout.dv), kMaxLanes) * 4,
                   64);
    live = reinterpret_cast<LiveTile*>(at);
  }
};

inline void zero_floats(float* to, int64_t count) {
  std::memset(to, 0, static_cast<size_t>(count) * sizeof(float));
}

struct AdditiveTask {
  int64_t batch, head;  // query head
  int64_t begin, end;   // keys
  int64_t row, rows;    // of the tile
};

// Rows of grad_out, lse and delta = grad_out . out - grad_lse of a tile. A row that sees nothing: every
// weight 0.
HWY_INLINE void load_tile(const AdditiveBackward& problem, const AdditiveTask& task,
                          const AdditiveScratch& s) {
  const Forward& p = problem.additive.forward;
  const View<const float> out(p.out.as<float>());
  const int64_t features = p.v.size[3];
  zero_floats(s.grad_out, kRows * round_up(features, kCols));
  for (int64_t r = 0; r < kRows; ++r) {
    s.lse[r] = HUGE_VALF;
    s.lse_rest[r] = s.delta[r] = 0.0F;
    if (r >= task.rows) continue;
    double sum = 0.0;
    for (int64_t f = 0; f < features; ++f) {
      const float x = problem.grad_out(task.batch, task.head, task.row + r, f);
      s.grad_out[f / kCols * kTile + r * kCols + f % kCols] = x;
      sum += static_cast<double>(x) * static_cast<double>(out(task.batch, task.head, task.row + r, f));
    }
    const double lse = p.lse(task.batch, task.head, task.row + r, 0);
    if (lse == -HUGE_VAL) continue;
    const SplitLse split(lse);
    s.lse[r] = split.high;
    s.lse_rest[r] = split.low;
    if (problem.grad_lse)
      sum -= static_cast<double>(problem.grad_lse(task.batch, task.head, task.row + r, 0));
    s.delta[r] = static_cast<float>(sum);
  }
}

// Hidden units, weights and gradients of scores of a tile; nothing of a pair that is not visible.
HWY_INLINE void make_tile(const AdditiveBackward& problem, const AdditiveTask& task, const HeadVector& vector,
                          int64_t key, LiveTile live, const float* keys, const float* values, uint64_t* words,
                          const AdditiveScratch& s) {
  const D d;
  const Forward& p = problem.additive.forward;
  const int64_t inputs = p.q.size[3];
  Accumulators acc;
#pragma GCC unroll 16
  for (int64_t r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int64_t n = 0; n < kVecs; ++n) acc.v[r][n] = hn::Set(d, vector.sum);
  const auto take = [&](int64_t f, int64_t i, int64_t n, Vec r) HWY_ATTR {
    hn::Store(r, d, s.hidden + f * kTile + i * kCols + n * kLanes);
    acc.v[i][n] = hn::MulAdd(hn::Set(d, vector.twice[f]), r, acc.v[i][n]);
  };
  each_feature(
      inputs, s.rows, keys,
      [&](int64_t f, int64_t i, int64_t n, Vec y) HWY_ATTR { take(f, i, n, hn::Div(hn::Set(d, 1.0F), y)); },
      [&](int64_t f, int64_t i, int64_t n, Vec y, Vec next) HWY_ATTR {
        const Vec both = hn::Div(hn::Set(d, 1.0F), hn::Mul(y, next));
        take(f, i, n, hn::Mul(next, both));
        take(f + 1, i, n, hn::Mul(y, both));
      });
  store(d, acc, s.weights);
  visible_words(p, task.batch, task.head, task.row, task.rows, key, live, words);
  multiply_features(d, s.grad_out, kRows, values, 0, p.v.size[3], acc);
  store(d, acc, s.grads);
  for (int64_t f = kFeatureChunk; f < p.v.size[3]; f += kFeatureChunk) {
    multiply_features(d, s.grad_out, kRows, values, f, p.v.size[3], acc);
    add_to(d, acc, s.grads);
  }
  bool all = task.rows == kRows;
  for (int64_t r = 0; r < kRows; ++r) {
    const uint64_t word = words[r];
    all = all && word == (uint64_t{1} << kCols) - 1;
    for (int64_t n = 0; n < kCols; n += kLanes) {
      float* weight_at = s.weights + r * kCols + n;
      float* grad_at = s.grads + r * kCols + n;
      const auto seen = visible(d, word >> n);
      const Vec logit =
          hn::Sub(hn::Sub(hn::Load(d, weight_at), hn::Set(d, s.lse[r])), hn::Set(d, s.lse_rest[r]));
      const Vec weight = hn::IfThenElseZero(seen, exp2(d, logit));
      hn::Store(weight, d, weight_at);
      const Vec grad = hn::Mul(weight, hn::Sub(hn::Load(d, grad_at), hn::Set(d, s.delta[r])));
      hn::Store(hn::IfThenElseZero(seen, grad), d, grad_at);
    }
  }
  if (all) return;
  // A NaN of a pair that is not visible must not meet its zero gradient.
  for (int64_t f = 0; f < inputs; ++f)
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t n = 0; n < kCols; n += kLanes) {
        float* at = s.hidden + f * kTile + r * kCols + n;
        hn::Store(hn::IfThenElseZero(visible(d, words[r] >> n), hn::Load(d, at)), d, at);
      }
}

// Sums over the tile: of ds r (1 - r) by rows and by keys, since 1 - tanh^2 = 4 r (1 - r), and of ds r.
HWY_INLINE void add_tile(int64_t inputs, const HeadVector& vector, float factor, const AdditiveScratch& s,
                         float* HWY_RESTRICT grad_k) {
  const D d;
  for (int64_t f = 0; f < inputs; ++f) {
    const float* hidden = s.hidden + f * kTile;
    Vec of_vector = hn::Load(d, s.grad_vector + f * kLanes);
    const Vec scale = hn::Set(d, factor * vector.twice[f]);
#pragma GCC unroll 4
    for (int64_t n = 0; n < kCols; n += kLanes) {
      Vec of_key = hn::Zero(d);
#pragma GCC unroll 16
      for (int64_t i = 0; i < kRows; ++i) {
        const Vec r = hn::Load(d, hidden + i * kCols + n);
        const Vec grad = hn::Load(d, s.grads + i * kCols + n);
        const Vec graded = hn::Mul(grad, r);
        of_vector = hn::Add(of_vector, graded);
        const Vec bent = hn::NegMulAdd(graded, r, graded);
        of_key = hn::Add(of_key, bent);
        float* of_row = s.grad_q + (f * kRows + i) * kLanes;
        hn::Store(hn::Add(hn::Load(d, of_row), bent), d, of_row);
      }
      float* at = grad_k + f * kCols + n;
      hn::Store(hn::MulAdd(scale, of_key, hn::Load(d, at)), d, at);
    }
    hn::Store(of_vector, d, s.grad_vector + f * kLanes);
  }
}

// grad_v += weights^T grad_out, visible pairs only.
HWY_INLINE void add_grad_v(const AdditiveTask& task, int64_t columns, int64_t features, int64_t dv,
                           const uint64_t* words, const AdditiveScratch& s, float* HWY_RESTRICT grad_v) {
  const D d;
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t f = 0; f < features; f += kCols)
#pragma GCC unroll 4
      for (int64_t n = 0; n < kCols; n += kLanes) {
        float* at = grad_v + c * dv + f + n;
        Vec sum = hn::Load(d, at);
        for (int64_t r = 0; r < task.rows; ++r) {
          if ((words[r] >> c & 1) == 0) continue;
          sum = hn::MulAdd(hn::Set(d, s.weights[r * kCols + c]),
                           hn::Load(d, s.grad_out + f * kRows + r * kCols + n), sum);
        }
        hn::Store(sum, d, at);
      }
}

// Where a tile's part of grad_q goes.
struct RowSums {
  float* data;
  int64_t row_stride, feature_stride;
};

template <class T>
void run_chunk(const AdditiveBackward& problem, const AdditiveBackwardLayout& layout, int64_t batch,
               int64_t kv_head, int64_t chunk, const float* vectors, float* partial_q, double* sums,
               const AdditiveScratch& s) {
  const D d;
  const Forward& p = problem.additive.forward;
  const int64_t group = p.q.size[1] / p.k.size[1];
  const int64_t inputs = layout.inputs;
  const int64_t features = p.v.size[3];
  const int64_t begin = chunk * layout.chunk_keys;
  const int64_t end = HWY_MIN(begin + layout.chunk_keys, p.k.size[2]);
  const int64_t count = HWY_MAX(end - begin, 0);
  const float log2e_less = static_cast<float>(kLn2);  // vectors are in units of log2
  const int64_t panels = (count + kCols - 1) / kCols;
  const auto at = [&](const ConstAnyView& view) HWY_ATTR {
    View<const T> from = view.as<const T>();
    from.data = from.at(batch, kv_head, begin);
    return from;
  };
  if (count > 0) {
    pack_additive_keys(at(p.k), 0, 0, 0, count, s.staging, s.keys);
    pack_keys(at(p.v), 0, 0, 0, count, s.staging, s.values);
  }
  zero_floats(s.grad_k, panels * kCols * inputs);
  zero_floats(s.grad_v, panels * kCols * layout.dv);
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const int64_t index = batch * p.q.size[1] + head;
    const HeadVector vector{vectors + index * layout.vector_floats,
                            vectors[index * layout.vector_floats + inputs]};
    double* vector_sums = sums + (index * layout.chunks + chunk) * inputs;
    for (int64_t f = 0; f < inputs; ++f) vector_sums[f] = 0.0;
    for (int64_t row = 0; row < p.q.size[2]; row += kRows) {
      const AdditiveTask task{batch, head, begin, end, row, HWY_MIN(kRows, p.q.size[2] - row)};
      zero_floats(s.grad_q, inputs * kRows * kLanes);
      zero_floats(s.grad_vector, inputs * kLanes);
      const PanelRange range = count > 0
                                   ? live_panels(p, batch, head, row, task.rows, begin, end, kCols, s.live)
                                   : PanelRange{0, 0};
      double grad_sum = 0.0;
      if (range.begin < range.end) {
        load_tile(problem, task, s);
        pack_additive_rows(p.q.as<const T>(), batch, head, row, task.rows, s.rows);
      }
      for (int64_t panel = range.begin; panel < range.end; ++panel) {
        if (s.live[panel].begin == s.live[panel].end) continue;
        const int64_t first = panel * kCols;
        uint64_t words[kRows];
        make_tile(problem, task, vector, begin + first, s.live[panel], s.keys + first * 2 * inputs,
                  s.values + first * features, words, s);
        // 1 - tanh^2 = 4 r (1 - r), and twice is -2 vector.
        add_tile(inputs, vector, -2.0F * log2e_less, s, s.grad_k + first * inputs);
        if (problem.grad_v)
          add_grad_v(task, HWY_MIN(kCols, count - first), features, layout.dv, words, s,
                     s.grad_v + first * layout.dv);
        Vec sum = hn::Zero(d);
        for (int64_t i = 0; i < kTile; i += kLanes) sum = hn::Add(sum, hn::Load(d, s.grads + i));
        grad_sum += static_cast<double>(sum_of_lanes(d, sum));
      }
      for (int64_t f = 0; f < inputs; ++f) {
        // tanh = 1 - 2 r.
        vector_sums[f] +=
            grad_sum - 2.0 * static_cast<double>(sum_of_lanes(d, hn::Load(d, s.grad_vector + f * kLanes)));
        if (!problem.grad_q) continue;
        const float scale = -2.0F * log2e_less * vector.twice[f];
        for (int64_t r = 0; r < task.rows; ++r) {
          const float sum = scale * sum_of_lanes(d, hn::Load(d, s.grad_q + (f * kRows + r) * kLanes));
          if (partial_q != nullptr)
            partial_q[((index * layout.chunks + chunk) * p.q.size[2] + row + r) * inputs + f] = sum;
          else
            problem.grad_q(batch, head, row + r, f) = sum;
        }
      }
    }
  }
  for (int64_t j = 0; j < count; ++j) {
    if (problem.grad_k)
      for (int64_t f = 0; f < inputs; ++f)
        problem.grad_k(batch, kv_head, begin + j, f) = s.grad_k[(j / kCols * inputs + f) * kCols + j % kCols];
    if (problem.grad_v)
      for (int64_t f = 0; f < features; ++f)
        problem.grad_v(batch, kv_head, begin + j, f) = s.grad_v[j * layout.dv + f];
  }
}

void AdditiveBackwardRun(const AdditiveBackward& problem, std::byte* workspace, Parallel& parallel) {
  const Forward& p = problem.additive.forward;
  const AdditiveBackwardLayout layout(problem);
  auto* vectors = reinterpret_cast<float*>(workspace);
  auto* sums = reinterpret_cast<double*>(workspace + layout.vector_bytes());
  auto* partials = reinterpret_cast<float*>(workspace + layout.vector_bytes() + layout.sums_bytes());
  float* partial_q = layout.partial_floats > 0 ? partials : nullptr;
  std::byte* scratch = reinterpret_cast<std::byte*>(partials + round_up(layout.partial_floats, kMaxLanes));
  pack_vectors(problem.additive, layout.vector_floats, LogitRule(p).query_factor, vectors);
  parallel.run(p.k.size[0] * p.k.size[1] * layout.chunks, [&](int64_t task, int worker) HWY_ATTR {
    const AdditiveScratch s(layout, scratch + static_cast<size_t>(worker) * layout.worker_bytes());
    const int64_t head = task / layout.chunks;
    with_type(p.q.dtype, [&](auto element) HWY_ATTR {
      run_chunk<decltype(element)>(problem, layout, head / p.k.size[1], head % p.k.size[1],
                                   task % layout.chunks, vectors, partial_q, sums, s);
    });
  });
  const int64_t rows = p.q.size[2];
  if (partial_q != nullptr)
    parallel.run(layout.heads, [&](int64_t head, int /*worker*/) {
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t f = 0; f < layout.inputs; ++f) {
          float sum = 0.0F;
          for (int64_t chunk = 0; chunk < layout.chunks; ++chunk)
            sum += partial_q[((head * layout.chunks + chunk) * rows + i) * layout.inputs + f];
          problem.grad_q(head / p.q.size[1], head % p.q.size[1], i, f) = sum;
        }
    });
  if (!problem.grad_vector) return;
  // What the vector repeats is summed: elements may coincide, so they start at 0 and all add to them.
  for (int pass = 0; pass < 2; ++pass)
    for (int64_t head = 0; head < layout.heads; ++head)
      for (int64_t f = 0; f < layout.inputs; ++f) {
        float& to = problem.grad_vector(head / p.q.size[1], head % p.q.size[1], 0, f);
        double sum = 0.0;
        for (int64_t chunk = 0; pass == 1 && chunk < layout.chunks; ++chunk)
          sum += sums[(head * layout.chunks + chunk) * layout.inputs + f];
        to = pass == 0 ? 0.0F : static_cast<float>(static_cast<double>(to) + sum);
      }
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "regard/kernel/dispatch.h"

namespace regard::kernel {

HWY_EXPORT(AdditiveBackwardRun);

size_t additive_backward_workspace(const AdditiveBackward& problem, int workers) {
  return AdditiveBackwardLayout(problem).bytes(workers);
}

void additive_backward(const AdditiveBackward& problem, std::span<std::byte> workspace, Parallel& parallel) {
  const size_t needed = additive_backward_workspace(problem, parallel.workers());
  if (workspace.size() < needed)
    throw std::invalid_argument("additive_backward was given " + std::to_string(workspace.size()) +
                                " bytes of workspace; it needs " + std::to_string(needed));
  REGARD_DISPATCH(AdditiveBackwardRun)(problem, workspace.data(), parallel);
}

}  // namespace regard::kernel

#endif  // HWY_ONCE

#include "regard/kernel/backward.h"

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "regard/kernel/backward.cc"
#include "regard/kernel/hwy_config.h"

#include <hwy/foreach_target.h>

#include "regard/kernel/backward_layout.h"
#include "regard/kernel/block-inl.h"
#include "regard/kernel/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

constexpr int64_t kReduceRows = 64;  // rows of a task that adds up the parts of grad_q

// Everything of a worker.
struct BackwardScratch {
  KeyChunk chunk{};
  QueryHead query{};
  BlockTiles tiles{};
  float* grad_q;  // nullptr where the parts are kept apart
  float* staging;
  uint64_t* live;      // [key blocks][block_words] blocks of rows that see something of a key block
  uint64_t* full;      // of these, those that see all of it
  LiveTile* row_live;  // of one block of rows: [key blocks]

  BackwardScratch(const BackwardLayout& layout, std::byte* at) {
    Carver carve(at);
    const int64_t keys = layout.chunk_keys;
    chunk.panel_rows = keys;
    chunk.keys = carve.take<float>(keys * layout.dk);
    chunk.key_rows = carve.take<float>(keys * layout.dk);
    chunk.values = carve.take<float>(keys * layout.dv);
    chunk.grad_k = carve.take<float>(keys * layout.dk);
    chunk.grad_v = carve.take<float>(keys * layout.dv);
    query.panel_rows = layout.rows;
    query.q = carve.take<float>(layout.rows * layout.dk);
    query.grad_out = carve.take<float>(layout.rows * layout.dv);
    grad_q = layout.partial_q ? nullptr : carve.take<float>(layout.query_floats());
    query.lse = carve.take<float>(layout.rows);
    query.lse_rest = carve.take<float>(layout.rows);
    query.delta = carve.take<float>(layout.rows);
    tiles.weights = carve.take<float>(kBlock * kBlock);
    tiles.grads = carve.take<float>(kBlock * kBlock);
    staging = carve.take<float>(kMaxCols * HWY_MAX(layout.dk, layout.dv));
    chunk.nonfinite = carve.take<uint64_t>(layout.key_words);
    query.nonfinite = carve.take<uint64_t>(layout.row_words);
    live = carve.take<uint64_t>(round_up(layout.key_blocks * layout.block_words, 8));
    full = carve.take<uint64_t>(round_up(layout.key_blocks * layout.block_words, 8));
    row_live = carve.take<LiveTile>(layout.key_blocks);
  }
};

HWY_INLINE void fill(float* to, int64_t count, float value) {
  const D d;
  const Vec x = hn::Set(d, value);
  for (int64_t i = 0; i < count; i += kLanes) hn::Store(x, d, to + i);  // counts are multiples of 16
}

template <class T>
View<const T> from_position(const ConstAnyView& view, int64_t position) {
  View<const T> shifted = view.as<const T>();
  shifted.data += position * shifted.stride[2];
  return shifted;
}

// The rows behind the last of `count` become 0, up to a whole tile, in all panels.
HWY_INLINE void clear_tail(float* panels, int64_t panel_rows, int64_t features, int64_t count) {
  const int64_t end = (count + kRows - 1) / kRows * kRows;
  for (int64_t f = 0; f < features; f += kCols)
    fill(panels + f * panel_rows + count * kCols, (end - count) * kCols, 0.0F);
}

template <class T>
void pack_chunk(const Backward& problem, int64_t batch, int64_t kv_head, BackwardScratch& s) {
  const Forward& p = problem.forward;
  KeyChunk& chunk = s.chunk;
  const int64_t count = chunk.end - chunk.begin;
  const View<const T> k = from_position<T>(p.k, chunk.begin);
  pack_keys(k, batch, kv_head, 0, count, s.staging, chunk.keys);
  for (int64_t word = 0; word * 64 < count; ++word) chunk.nonfinite[word] = 0;
  pack_rows(k, batch, kv_head, 0, count, 1.0F, chunk.panel_rows, chunk.key_rows, chunk.nonfinite);
  pack_keys(from_position<T>(p.v, chunk.begin), batch, kv_head, 0, count, s.staging, chunk.values);
  if (chunk.grad_k != nullptr)
    for (int64_t f = 0; f < p.k.size[3]; f += kCols)
      fill(chunk.grad_k + f * chunk.panel_rows, round_up(count, kBlock) * kCols, 0.0F);
  if (chunk.grad_v != nullptr)
    for (int64_t f = 0; f < p.v.size[3]; f += kCols)
      fill(chunk.grad_v + f * chunk.panel_rows, round_up(count, kBlock) * kCols, 0.0F);
}

// delta = grad_out . out of each row; grad_out is packed.
template <class T>
HWY_INLINE void set_delta(const View<const T>& out, const QueryHead& q) {
  const D d;
  HWY_ALIGN float row[kCols];
  for (int64_t i = 0; i < out.size[2]; ++i) {
    Vec sum = hn::Zero(d);
    for (int64_t f = 0; f < out.size[3]; f += kCols) {
      const int64_t n = HWY_MIN(kCols, out.size[3] - f);
      for (int64_t c = n; c < kCols; ++c) row[c] = 0.0F;
      load_row(&out(q.batch, q.head, i, f), out.stride[3], n, 1.0F, row);
      const float* packed = q.grad_out + f * q.panel_rows + i * kCols;
      for (int64_t c = 0; c < kCols; c += kLanes)
        sum = hn::MulAdd(hn::Load(d, row + c), hn::Load(d, packed + c), sum);
    }
    q.delta[i] = sum_of_lanes(d, sum);
  }
}

// q, grad_out, lse and delta of a head; sink_sum, if wanted, becomes the gradient of its sink.
template <class T>
void pack_head(const Backward& problem, const LogitRule& rule, QueryHead& q, double* sink_sum) {
  const Forward& p = problem.forward;
  const int64_t rows = p.q.size[2];
  for (int64_t word = 0; word * 64 < rows; ++word) q.nonfinite[word] = 0;
  pack_rows(p.q.as<const T>(), q.batch, q.head, 0, rows, rule.query_factor, q.panel_rows, q.q, q.nonfinite);
  with_type(problem.grad_out.dtype, [&](auto element) HWY_ATTR {
    pack_rows(problem.grad_out.as<const decltype(element)>(), q.batch, q.head, 0, rows, 1.0F, q.panel_rows,
              q.grad_out, q.nonfinite);
  });
  with_type(p.out.dtype, [&](auto element) HWY_ATTR {
    set_delta(View<const decltype(element)>(p.out.as<decltype(element)>()), q);
  });
  clear_tail(q.q, q.panel_rows, p.q.size[3], rows);
  clear_tail(q.grad_out, q.panel_rows, p.v.size[3], rows);
  double sink = 0.0;
  for (int64_t i = 0; i < rows; ++i) {
    const double lse = p.lse(q.batch, q.head, i, 0);
    const double grad_lse = problem.grad_lse ? problem.grad_lse(q.batch, q.head, i, 0) : 0.0F;
    const bool empty = lse == -HUGE_VAL;
    const SplitLse split(empty ? HUGE_VAL : lse);
    q.lse[i] = split.high;
    q.lse_rest[i] = split.low;
    q.delta[i] = empty ? 0.0F : static_cast<float>(static_cast<double>(q.delta[i]) - grad_lse);
    if (sink_sum != nullptr && !empty)
      sink -= std::exp(static_cast<double>(p.sinks(q.batch, q.head, 0, 0)) - lse) *
              static_cast<double>(q.delta[i]);
  }
  for (int64_t i = rows; i < (rows + kRows - 1) / kRows * kRows; ++i) {
    q.lse[i] = HUGE_VALF;
    q.lse_rest[i] = 0.0F;
    q.delta[i] = 0.0F;
  }
  if (sink_sum != nullptr) *sink_sum = sink;
}

// Which blocks of the chunk are alive, as bits by key block, so that keys can be the outer loop.
HWY_INLINE void find_blocks(const Backward& problem, const BackwardLayout& layout,
                            const BackwardTiling& tiling, const BackwardScratch& s) {
  const Forward& p = problem.forward;
  const int64_t rows = p.q.size[2];
  std::memset(s.live, 0, static_cast<size_t>(layout.key_blocks * layout.block_words) * 8);
  std::memset(s.full, 0, static_cast<size_t>(layout.key_blocks * layout.block_words) * 8);
  int64_t block = 0;
  for (int64_t row = 0; row < rows; row += tiling.block_rows, ++block) {
    const PanelRange range =
        live_panels(p, s.query.batch, s.query.head, row, HWY_MIN(tiling.block_rows, rows - row),
                    s.chunk.begin, s.chunk.end, kBlock, s.row_live);
    const uint64_t bit = uint64_t{1} << (block % 64);
    for (int64_t key_block = range.begin; key_block < range.end; ++key_block) {
      const LiveTile tile = s.row_live[key_block];
      if (tile.begin == tile.end) continue;
      const int64_t word = key_block * layout.block_words + block / 64;
      const int64_t keys = HWY_MIN(kBlock, s.chunk.end - s.chunk.begin - key_block * kBlock);
      s.live[word] |= bit;
      if (tile.full && tile.end - tile.begin == keys) s.full[word] |= bit;
    }
  }
}

HWY_INLINE void add_blocks(const Backward& problem, const LogitRule& rule, const BackwardLayout& layout,
                           const BackwardTiling& tiling, const BackwardScratch& s) {
  const int64_t rows = problem.forward.q.size[2];
  for (int64_t key_block = 0; key_block < layout.key_blocks; ++key_block) {
    const int64_t key = s.chunk.begin + key_block * kBlock;
    if (key >= s.chunk.end) break;
    for (int64_t word = 0; word < layout.block_words; ++word) {
      const uint64_t full = s.full[key_block * layout.block_words + word];
      for (uint64_t live = s.live[key_block * layout.block_words + word]; live != 0; live &= live - 1) {
        const int bit = __builtin_ctzll(live);
        const int64_t row = (word * 64 + bit) * tiling.block_rows;
        add_block(problem, rule, s.chunk, s.query,
                  {row, HWY_MIN(tiling.block_rows, rows - row), key, HWY_MIN(kBlock, s.chunk.end - key),
                   (full >> bit & 1) != 0},
                  s.tiles);
      }
    }
  }
}

// Rows of sums in panels become rows of a gradient, times factor.
HWY_INLINE void store_rows(const AnyView& to, int64_t batch, int64_t head, int64_t position, int64_t count,
                           const float* panels, int64_t panel_rows, float factor) {
  for (int64_t i = 0; i < count; ++i)
    store_out<kCols>(to, batch, head, position + i, factor, panels + i * kCols, kCols * panel_rows);
}

template <class T>
void run_backward(const Backward& problem, const BackwardTiling& tiling, std::byte* workspace,
                  Parallel& parallel) {
  const Forward& p = problem.forward;
  const BackwardLayout layout(problem, tiling);
  const LogitRule rule(p);
  const int64_t heads = p.q.size[1];
  const int64_t kv_heads = p.k.size[1];
  const int64_t group = heads / kv_heads;
  const int64_t rows = p.q.size[2];
  const int64_t keys = p.k.size[2];

  auto* sink_sums = reinterpret_cast<double*>(workspace);
  double* slope_sums = sink_sums + layout.query_heads;  // [head][chunk]
  auto* partial = reinterpret_cast<float*>(workspace + layout.sums_bytes());
  std::byte* workers = workspace + layout.sums_bytes() + layout.partial_bytes();
  const auto part_of = [&](int64_t batch, int64_t head, int64_t chunk) {
    return partial + ((batch * heads + head) * layout.chunks + chunk) * layout.query_floats();
  };

  const auto run_kv_head = [&](int64_t batch, int64_t kv_head, int64_t chunk, BackwardScratch& s) HWY_ATTR {
    pack_chunk<T>(problem, batch, kv_head, s);
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      QueryHead& q = s.query;
      q.batch = batch;
      q.head = head;
      if (problem.grad_q) {
        q.grad_q = layout.partial_q ? part_of(batch, head, chunk) : s.grad_q;
        for (int64_t f = 0; f < p.q.size[3]; f += kCols)
          fill(q.grad_q + f * q.panel_rows, layout.rows * kCols, 0.0F);
      }
      double* slope_sum = slope_sums + (batch * heads + head) * layout.chunks + chunk;
      *slope_sum = 0.0;
      q.slope_sum = problem.grad_slopes ? slope_sum : nullptr;
      pack_head<T>(problem, rule, q,
                   problem.grad_sinks && chunk == 0 ? sink_sums + batch * heads + head : nullptr);
      find_blocks(problem, layout, tiling, s);
      add_blocks(problem, rule, layout, tiling, s);
      if (problem.grad_q && !layout.partial_q)
        store_rows(problem.grad_q, batch, head, 0, rows, q.grad_q, q.panel_rows, p.scale);
    }
    const int64_t count = s.chunk.end - s.chunk.begin;
    if (problem.grad_k)
      store_rows(problem.grad_k, batch, kv_head, s.chunk.begin, count, s.chunk.grad_k, s.chunk.panel_rows,
                 rule.key_factor);
    if (problem.grad_v)
      store_rows(problem.grad_v, batch, kv_head, s.chunk.begin, count, s.chunk.grad_v, s.chunk.panel_rows,
                 1.0F);
  };

  parallel.run(layout.batch_units * layout.head_units * layout.chunks, [&](int64_t task,
                                                                           int worker) HWY_ATTR {
    BackwardScratch s(layout, workers + static_cast<size_t>(worker) * layout.worker_bytes());
    fill(s.tiles.weights, 2 * kBlock * kBlock, 0.0F);
    if (!problem.grad_k) s.chunk.grad_k = nullptr;
    if (!problem.grad_v) s.chunk.grad_v = nullptr;
    const int64_t chunk = task % layout.chunks;
    const int64_t unit = task / layout.chunks;
    s.chunk.begin = chunk * layout.chunk_keys;
    s.chunk.end = HWY_MIN(s.chunk.begin + layout.chunk_keys, keys);
    const int64_t batches = p.k.size[0] / layout.batch_units;
    const int64_t in_unit = kv_heads / layout.head_units;
    for (int64_t b = 0; b < batches; ++b)
      for (int64_t h = 0; h < in_unit; ++h)
        run_kv_head(unit / layout.head_units * batches + b, unit % layout.head_units * in_unit + h, chunk, s);
  });

  if (layout.partial_q) {
    const int64_t pieces = (rows + kReduceRows - 1) / kReduceRows;
    parallel.run(layout.query_heads * pieces, [&](int64_t task, int /*worker*/) HWY_ATTR {
      const D d;
      const int64_t batch = task / pieces / heads;
      const int64_t head = task / pieces % heads;
      const int64_t row = task % pieces * kReduceRows;
      const int64_t count = HWY_MIN(kReduceRows, rows - row);
      float* sum = part_of(batch, head, 0);
      for (int64_t chunk = 1; chunk < layout.chunks; ++chunk) {
        const float* part = part_of(batch, head, chunk);
        for (int64_t f = 0; f < p.q.size[3]; f += kCols) {
          const int64_t at = f * layout.rows + row * kCols;
          for (int64_t i = 0; i < count * kCols; i += kLanes)
            hn::Store(hn::Add(hn::Load(d, sum + at + i), hn::Load(d, part + at + i)), d, sum + at + i);
        }
      }
      store_rows(problem.grad_q, batch, head, row, count, sum + row * kCols, layout.rows, p.scale);
    });
  }
  for (int64_t batch = 0; batch < p.q.size[0]; ++batch)
    for (int64_t head = 0; head < heads; ++head) {
      if (problem.grad_sinks)
        problem.grad_sinks(batch, head, 0, 0) += static_cast<float>(sink_sums[batch * heads + head]);
      for (int64_t chunk = 0; problem.grad_slopes && chunk < layout.chunks; ++chunk)
        problem.grad_slopes(batch, head, 0, 0) +=
            static_cast<float>(slope_sums[(batch * heads + head) * layout.chunks + chunk]);
    }
}

void RunBackward(const Backward& p, const BackwardTiling& tiling, std::byte* workspace, Parallel& parallel) {
  with_type(p.forward.q.dtype,
            [&](auto element) HWY_ATTR { run_backward<decltype(element)>(p, tiling, workspace, parallel); });
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "regard/kernel/dispatch.h"

namespace regard::kernel {

HWY_EXPORT(RunBackward);

namespace {

// What zero strides repeat becomes 0 once; then all tasks add to it.
void clear(const View<float>& view) {
  if (!view) return;
  Extents size = view.size;
  for (size_t axis = 0; axis < 4; ++axis)
    if (view.stride[axis] == 0) size[axis] = std::min<int64_t>(size[axis], 1);
  for (int64_t b = 0; b < size[0]; ++b)
    for (int64_t h = 0; h < size[1]; ++h)
      for (int64_t i = 0; i < size[2]; ++i)
        for (int64_t j = 0; j < size[3]; ++j) view(b, h, i, j) = 0.0F;
}

}  // namespace

BackwardTiling choose_backward_tiling(const Backward& problem) {
  const Forward& p = problem.forward;
  const View<float>& bias = problem.grad_bias;
  BackwardTiling tiling;
  const int64_t keys = std::max<int64_t>(p.k.size[2], 1);
  // Tasks enough for many threads; a chunk costs one more pass over q and a copy of grad_q.
  const int64_t units =
      (bias && bias.stride[0] == 0 ? 1 : p.k.size[0]) * (bias && bias.stride[1] == 0 ? 1 : p.k.size[1]);
  int64_t chunks = units >= 16 ? 1 : std::min<int64_t>(16 / std::max<int64_t>(units, 1), 8);
  chunks = std::min(chunks, (keys + 2 * kBlock - 1) / (2 * kBlock));
  if (bias && bias.stride[3] == 0) chunks = 1;  // all keys write the same element
  tiling.chunk_keys = round_up((keys + chunks - 1) / chunks, kBlock);
  tiling.block_rows = p.q.size[3] + p.v.size[3] > 160 ? kBlock / 2 : kBlock;
  return tiling;
}

size_t backward_workspace(const Backward& problem, const BackwardTiling& tiling, int workers) {
  return BackwardLayout(problem, tiling).bytes(workers);
}

void backward(const Backward& problem, const BackwardTiling& tiling, std::span<std::byte> workspace,
              Parallel& parallel) {
  const size_t needed = backward_workspace(problem, tiling, parallel.workers());
  if (workspace.size() < needed)
    throw std::invalid_argument("backward was given " + std::to_string(workspace.size()) +
                                " bytes of workspace; it needs " + std::to_string(needed));
  if (problem.forward.pages) throw std::invalid_argument("backward knows no keys in pages");
  clear(problem.grad_bias);
  clear(problem.grad_slopes);
  clear(problem.grad_sinks);
  REGARD_DISPATCH(RunBackward)(problem, tiling, workspace.data(), parallel);
}

}  // namespace regard::kernel

#endif  // HWY_ONCE

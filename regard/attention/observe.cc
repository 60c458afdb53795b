#include "regard/attention/observe.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "regard/attention/lower.h"

namespace regard::attention {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();
constexpr int64_t kTileRows = 64;   // rows that share one packing of the keys
constexpr int64_t kTileKeys = 512;  // with 64 rows 128 KiB of logits: they stay in L2
constexpr int64_t kLanes = 16;

// e^x, x clipped to [-87, 88] and 0 below (range reduction and polynomial as in Cephes; relative error
// 2^-23). Plain arithmetic without branches: compilers make vectors of it.
inline float fast_exp(float x) {
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  const float clipped = x > 88.0F ? 88.0F : x;
  const float t = clipped * 1.44269504F + kRound;
  const float n = t - kRound;
  const float r = (clipped - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  const float y = p * (r * r) + r + 1.0F;
  const int32_t exponent = (std::bit_cast<int32_t>(t) - std::bit_cast<int32_t>(kRound) + 127) << 23;
  return x < -87.0F ? 0.0F : y * std::bit_cast<float>(exponent);
}

// Writes the weights of one stretch of a row and returns -sum p ln p over it.
double weigh(const float* __restrict logits, float lse, int64_t count, float* __restrict weights) {
  std::array<float, kLanes> sum{};
  const auto step = [&](int64_t j, int64_t lane) {
    const float d = logits[j] - lse;  // ln p
    const float p = fast_exp(d);
    weights[j] = p;
    sum[lane] -= p * (d < -88.0F ? -88.0F : d);  // no 0 * inf
  };
  int64_t j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) step(j + lane, lane);
  }
  for (int64_t lane = 0; j < count; ++j, ++lane) step(j, lane);
  double total = 0;
  for (const float lane : sum) total += lane;
  return total;
}

float largest(const float* x, int64_t count) {
  std::array<float, kLanes> top;
  top.fill(kNothing);
  int64_t j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane)
      top[lane] = x[j + lane] > top[lane] ? x[j + lane] : top[lane];
  }
  for (; j < count; ++j) top[0] = std::max(top[0], x[j]);
  return *std::max_element(top.begin(), top.end());
}

struct SumAndLargest {
  float sum;
  float largest;
};

// Of weights: none is below 0.
SumAndLargest sum_and_largest(const float* x, int64_t count) {
  std::array<float, kLanes> sum{};
  std::array<float, kLanes> top{};
  int64_t j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) sum[lane] += x[j + lane];
    for (int64_t lane = 0; lane < kLanes; ++lane)
      top[lane] = x[j + lane] > top[lane] ? x[j + lane] : top[lane];
  }
  for (int64_t lane = 0; j < count; ++j, ++lane) {
    sum[lane] += x[j];
    top[lane] = x[j] > top[lane] ? x[j] : top[lane];
  }
  SumAndLargest all{0, 0};
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    all.sum += sum[lane];
    all.largest = std::max(all.largest, top[lane]);
  }
  return all;
}

// The largest k logits of a row so far, in order. Keys arrive in order, so a tie stays behind its elder.
void keep_top(const float* logits, int64_t key, int64_t count, int64_t k, float* top, int64_t* keys) {
  for (int64_t block = 0; block < count; block += kLanes) {
    const int64_t size = std::min(kLanes, count - block);
    if (!(largest(logits + block, size) > top[k - 1])) continue;
    for (int64_t j = block; j < block + size; ++j) {
      if (!(logits[j] > top[k - 1])) continue;
      int64_t at = k - 1;
      for (; at > 0 && logits[j] > top[at - 1]; --at) {
        top[at] = top[at - 1];
        keys[at] = keys[at - 1];
      }
      top[at] = logits[j];
      keys[at] = key + j;
    }
  }
}

class Observer {
 public:
  Observer(const Observe& what, const Spec& spec, const Operands& operands, View<const float> lse,
           Observation& result)
      : what_(what),
        mask_(bind_mask(spec, operands)),
        problem_(lower(spec, operands, mask_)),
        lse_(lse),
        result_(result),
        B_(operands.q.size[0]),
        H_(operands.q.size[1]),
        Lq_(operands.q.size[2]),
        Lk_(operands.k.size[2]) {
    // How the rows of a head are cut into tasks: by the problem, so that sums do not depend on the workers.
    // Few heads get up to 16 pieces; each holds a row of column sums.
    const int64_t heads = std::max<int64_t>(1, B_ * H_);
    pieces_ = std::clamp<int64_t>((64 + heads - 1) / heads, 1, std::min<int64_t>(16, (Lq_ + 255) / 256 + 1));
    const int64_t unit = has_blocks() ? what_.block_rows : 1;  // a block belongs to one task
    const int64_t share = (Lq_ + pieces_ - 1) / pieces_;
    piece_rows_ = std::max<int64_t>(unit, (share + unit - 1) / unit * unit);
    pieces_ = std::max<int64_t>(1, (Lq_ + piece_rows_ - 1) / piece_rows_);
    if (has_blocks()) {
      down_ = (Lq_ + what_.block_rows - 1) / what_.block_rows;
      across_ = (Lk_ + what_.block_keys - 1) / what_.block_keys;
    }
  }

  void run(kernel::Parallel& parallel) {
    if (what_ == Observe{}) return;
    const int64_t rows = B_ * H_ * Lq_;
    if (what_.entropy) result_.entropy.assign(rows, 0.0F);
    if (what_.entropy && problem_.sinks) result_.sink_mass.assign(rows, 0.0F);
    if (what_.row_max) result_.row_max.assign(rows, kNothing);
    if (what_.top_k > 0) {
      result_.top_keys.assign(rows * what_.top_k, -1);
      result_.top_weights.assign(rows * what_.top_k, kNothing);  // logits, until a row is done
    }
    if (has_blocks()) {
      result_.block_mean.assign(B_ * H_ * down_ * across_, 0.0F);
      result_.block_max.assign(B_ * H_ * down_ * across_, 0.0F);
    }
    if (what_.column_sums) columns_.assign(B_ * H_ * pieces_ * Lk_, 0.0);
    scratch_.resize(parallel.workers());
    parallel.run(B_ * H_ * pieces_, [&](int64_t task, int worker) { piece(task, scratch_[worker]); });
    if (what_.column_sums) {
      result_.column_sums.assign(B_ * H_ * Lk_, 0.0F);
      parallel.run(B_ * H_, [&](int64_t head, int) { sum_columns(head); });
    }
    for (int64_t block = 0; block < static_cast<int64_t>(result_.block_mean.size()); ++block) {
      const int64_t height = std::min(what_.block_rows, Lq_ - block / across_ % down_ * what_.block_rows);
      const int64_t width = std::min(what_.block_keys, Lk_ - block % across_ * what_.block_keys);
      result_.block_mean[block] /= static_cast<float>(height) * static_cast<float>(width);
    }
  }

 private:
  struct Scratch {
    std::vector<float> logits;
    std::vector<float> weights;
    std::vector<double> entropy;
  };
  bool has_blocks() const { return what_.block_rows > 0; }

  void piece(int64_t task, Scratch& scratch) {
    scratch.logits.resize(kTileRows * kTileKeys);
    scratch.weights.resize(kTileKeys);
    scratch.entropy.resize(kTileRows);
    const int64_t head = task / pieces_;  // batch entry * Hq + head
    const int64_t begin = task % pieces_ * piece_rows_;
    const int64_t end = std::min(Lq_, begin + piece_rows_);
    double* columns = what_.column_sums ? columns_.data() + task * Lk_ : nullptr;
    for (int64_t row = begin; row < end; row += kTileRows) {
      const int64_t rows = std::min(kTileRows, end - row);
      std::fill(scratch.entropy.begin(), scratch.entropy.end(), 0.0);
      for (kernel::Span span = next_stretch(head, row, rows, 0); span.begin < span.end;
           span = next_stretch(head, row, rows, span.end)) {
        tile(head, row, rows, span.begin, span.end - span.begin, columns, scratch);
      }
      finish_rows(head, row, rows, scratch);
    }
  }

  // The next keys that some row may see, at most a tile; spans that touch are taken together.
  kernel::Span next_stretch(int64_t head, int64_t row, int64_t rows, int64_t from) const {
    kernel::Span stretch{Lk_, Lk_, false};
    while (true) {
      const kernel::Span span = problem_.mask ? mask_.next_span(head / H_, head % H_, row, rows, from)
                                              : kernel::Span{from, Lk_, true};
      if (span.begin >= span.end) return stretch;
      if (stretch.begin == Lk_) {
        stretch.begin = span.begin;
      } else if (span.begin != stretch.end) {
        return stretch;
      }
      stretch.end = std::min(span.end, stretch.begin + kTileKeys);
      if (stretch.end - stretch.begin == kTileKeys) return stretch;
      from = stretch.end;
      if (from == Lk_) return stretch;
    }
  }

  void tile(int64_t head, int64_t row, int64_t rows, int64_t key, int64_t keys, double* columns,
            Scratch& scratch) {
    kernel::weights_tile(problem_, lse_, head / H_, head % H_, row, rows, key, keys, scratch.logits.data(),
                         true);
    const bool weighs = what_.entropy || what_.column_sums || has_blocks();
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t at = head * Lq_ + row + r;
      const float* logits = scratch.logits.data() + r * keys;
      const float lse = lse_(head / H_, head % H_, row + r, 0);
      if (what_.row_max) result_.row_max[at] = std::max(result_.row_max[at], largest(logits, keys));
      if (what_.top_k > 0) {
        keep_top(logits, key, keys, what_.top_k, result_.top_weights.data() + at * what_.top_k,
                 result_.top_keys.data() + at * what_.top_k);
      }
      if (!weighs || lse == kNothing) continue;
      float* weights = scratch.weights.data();
      scratch.entropy[r] += weigh(logits, lse, keys, weights);
      if (columns != nullptr) {
        for (int64_t j = 0; j < keys; ++j) columns[key + j] += static_cast<double>(weights[j]);
      }
      if (has_blocks()) add_to_blocks(head, row + r, key, keys, weights);
    }
  }

  void add_to_blocks(int64_t head, int64_t row, int64_t key, int64_t keys, const float* weights) {
    const int64_t base = (head * down_ + row / what_.block_rows) * across_;
    for (int64_t j = 0; j < keys;) {
      const int64_t block = (key + j) / what_.block_keys;
      const int64_t stop = std::min(keys, (block + 1) * what_.block_keys - key);
      const auto [sum, top] = sum_and_largest(weights + j, stop - j);
      j = stop;
      result_.block_mean[base + block] += sum;
      result_.block_max[base + block] = std::max(result_.block_max[base + block], top);
    }
  }

  void finish_rows(int64_t head, int64_t row, int64_t rows, const Scratch& scratch) {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t at = head * Lq_ + row + r;
      const float lse = lse_(head / H_, head % H_, row + r, 0);
      if (what_.entropy) result_.entropy[at] = static_cast<float>(scratch.entropy[r]);
      if (!result_.sink_mass.empty()) {
        const float sink = problem_.sinks(head / H_, head % H_, 0, 0);
        result_.sink_mass[at] = lse == kNothing ? 0.0F : std::exp(sink - lse);
      }
      for (int64_t n = 0; n < what_.top_k; ++n) {
        float& top = result_.top_weights[at * what_.top_k + n];
        top = top == kNothing ? 0.0F : fast_exp(top - lse);
      }
    }
  }

  void sum_columns(int64_t head) {
    for (int64_t j = 0; j < Lk_; ++j) {
      double sum = 0;
      for (int64_t piece = 0; piece < pieces_; ++piece) sum += columns_[(head * pieces_ + piece) * Lk_ + j];
      result_.column_sums[head * Lk_ + j] = static_cast<float>(sum);
    }
  }

  const Observe& what_;
  const BoundMask mask_;
  const kernel::Forward problem_;
  const View<const float> lse_;
  Observation& result_;
  const int64_t B_, H_, Lq_, Lk_;
  int64_t pieces_ = 1;      // tasks a head
  int64_t piece_rows_ = 1;  // rows a task
  int64_t down_ = 0;        // blocks of a map
  int64_t across_ = 0;
  std::vector<double> columns_;  // [B * Hq, pieces, Lk]
  std::vector<Scratch> scratch_;
};

}  // namespace

Observation observe(const Observe& what, const Spec& spec, const Operands& operands, View<const float> lse,
                    kernel::Parallel& parallel) {
  check_inputs(spec, operands);
  check_lse(operands, lse);
  if (what.top_k < 0 || what.top_k > operands.k.size[2]) {
    throw std::invalid_argument("observe: top_k is " + std::to_string(what.top_k) +
                                "; allowed: 0 to Lk = " + std::to_string(operands.k.size[2]));
  }
  if (what.block_rows < 0 || what.block_keys < 0 || (what.block_rows > 0) != (what.block_keys > 0)) {
    throw std::invalid_argument("observe: (block_rows, block_keys) = (" + std::to_string(what.block_rows) +
                                ", " + std::to_string(what.block_keys) +
                                "); allowed: both above 0, or both 0 for no map");
  }
  Observation result;
  Observer(what, spec, operands, lse, result).run(parallel);
  return result;
}

}  // namespace regard::attention

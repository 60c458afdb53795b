#include "regard/attention/lsh_attention.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <stdexcept>
#include <string>

#include "regard/attention/attention.h"
#include "regard/attention/merge.h"
#include "regard/attention/owned.h"

namespace regard::attention {
namespace {

// splitmix64: one number for each counter, the same on every machine.
uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

// Box and Muller.
double normal_draw(uint64_t seed, uint64_t counter) {
  const auto uniform = [&](uint64_t n) {
    return (static_cast<double>(mix(seed ^ mix(n)) >> 11) + 0.5) * 0x1p-53;
  };
  return std::sqrt(-2 * std::log(uniform(2 * counter))) *
         std::cos(2 * std::numbers::pi * uniform(2 * counter + 1));
}

void check_call(const LshOptions& options, const Operands& operands) {
  const auto refuse = [](const std::string& name, int64_t value, const char* allowed) {
    throw std::invalid_argument("lsh_attention: " + name + " is " + std::to_string(value) +
                                "; allowed: " + allowed);
  };
  if (options.buckets < 1 || (options.buckets > 1 && options.buckets % 2 != 0)) {
    refuse("buckets", options.buckets, "1 or an even number");
  }
  if (options.rounds < 1) refuse("rounds", options.rounds, "1 or more");
  if (options.chunk < 1) refuse("chunk", options.chunk, "1 or more");
  Operands shared = operands;
  shared.k = operands.q;
  check_plain("lsh_attention", shared);
}

// x / |x|; 0 stays 0.
float inverse_norm(const View<const float>& x, int64_t b, int64_t h, int64_t i) {
  double squares = 0;
  for (int64_t d = 0; d < x.size[3]; ++d) {
    const double value = x(b, h, i, d);
    squares += value * value;
  }
  return squares > 0 ? static_cast<float>(1 / std::sqrt(squares)) : 0.0F;
}

// One round: rows in the order of (bucket, position), each batch entry and head an entry of its own.
struct Round {
  const kernel::Extents& size;  // of q
  const LshOptions& options;
  std::vector<int64_t> order;  // [B * H, L]: which row stands there
  std::vector<int32_t> bucket,
      section;                // [B * H, L] of the sorted rows; section: a number for bucket and chunk
  std::vector<uint8_t> near;  // [chunks, chunks of keys]: the own chunk and the one before

  Round(const LshOptions& options, const View<const float>& q, int64_t round)
      : size(q.size), options(options) {
    const int64_t L = size[2];
    const std::vector<int32_t> hashes = lsh_buckets(q, options.buckets, options.seed, round);
    order.resize(hashes.size());
    for (int64_t first = 0; first < static_cast<int64_t>(hashes.size()); first += L) {
      const auto begin = order.begin() + first;
      std::iota(begin, begin + L, int64_t{0});
      std::stable_sort(begin, begin + L,
                       [&](int64_t a, int64_t b) { return hashes[first + a] < hashes[first + b]; });
      for (int64_t i = 0; i < L; ++i) {
        bucket.push_back(hashes[first + order[first + i]]);
        section.push_back(static_cast<int32_t>(i / options.chunk * options.buckets) + bucket.back());
      }
    }
    const int64_t chunks = (L + options.chunk - 1) / options.chunk;
    const int64_t key_chunks = (std::max<int64_t>(L - 1, 0) + options.chunk - 1) / options.chunk;
    near.resize(chunks * key_chunks);
    for (int64_t i = 0; i < chunks; ++i)
      for (int64_t j = std::max<int64_t>(i - 1, 0); j <= std::min(i, key_chunks - 1); ++j)
        near[i * key_chunks + j] = 1;
  }

  // to[B * H, 1, L, D] = the sorted rows of from, times inverse norms where normal.
  Owned gather(const View<const float>& from, bool normal = false) const {
    const auto [B, H, L, D] = from.size;
    Owned sorted({B * H, 1, L, D});
    const View<float> to = sorted.view();
    for (int64_t n = 0; n < B * H; ++n)
      for (int64_t i = 0; i < L; ++i) {
        const int64_t row = order[n * L + i];
        const float factor = normal ? inverse_norm(from, n / H, n % H, row) : 1.0F;
        const float* source = from.at(n / H, n % H, row);
        float* target = to.at(n, 0, i);
        for (int64_t d = 0; d < D; ++d) target[d] = factor * source[d * from.stride[3]];
      }
    return sorted;
  }

  // add(entry, sorted position, batch, head, row) for all rows.
  template <class Add>
  void scatter(Add&& add) const {
    const int64_t H = size[1];
    const int64_t L = size[2];
    for (int64_t n = 0; n < size[0] * H; ++n)
      for (int64_t i = 0; i < L; ++i) add(n, i, n / H, n % H, order[n * L + i]);
  }

  // Keys before the row: all but the last key, so that bottom-right causal is "strictly before". Keys behind
  // it (not causal): all but the first, in the own chunk.
  int halves() const { return options.causal ? 1 : 2; }
  Spec spec(int half) const {
    Spec spec;
    spec.scale = options.scale;
    spec.mask = Mask::segments();
    spec.mask =
        half == 0 ? spec.mask & Mask::causal(Align::bottom_right) & Mask::blocks(options.chunk, options.chunk)
                  : spec.mask & Mask::window(0, -1, Align::top_left);
    return spec;
  }
  // The rows of `of` that are the keys of a half.
  View<float> keys(View<float> of, int half) const {
    of.size[2] = std::max<int64_t>(of.size[2] - 1, 0);
    if (half == 1 && of.size[2] > 0) of.data += of.stride[2];
    return of;
  }
  Operands operands(int half, Owned& q, Owned& k, Owned& v) const {
    Operands call;
    call.q = q.const_view();
    call.k = keys(k.view(), half);
    call.v = keys(v.view(), half);
    const int64_t entries = size[0] * size[1];
    const int64_t L = size[2];
    const int32_t* numbers = half == 0 ? bucket.data() : section.data();
    call.query_segments = {numbers, {entries, 1, 1, L}};
    call.key_segments = {numbers + half, {entries, 1, 1, L - 1}, {L, L, L, 1}};
    if (half == 0) {
      const int64_t chunks = (L + options.chunk - 1) / options.chunk;
      call.block_mask = {near.data(), {1, 1, chunks, (L - 1 + options.chunk - 1) / options.chunk}};
    }
    return call;
  }
};

}  // namespace

std::vector<int32_t> lsh_buckets(const View<const float>& x, int64_t buckets, uint64_t seed, int64_t round) {
  const auto [B, H, L, D] = x.size;
  std::vector<int32_t> result(B * H * L, 0);
  const int64_t half = buckets / 2;
  if (half == 0) return result;
  std::vector<float> rotation(half * D);
  for (size_t i = 0; i < rotation.size(); ++i)
    rotation[i] = static_cast<float>(normal_draw(mix(seed) + static_cast<uint64_t>(round), i));
  // x R^T as logits of the engine: its tiles, not loops of ours.
  constexpr int64_t kRows = 256;
  Spec spec;
  spec.scale = 1.0;
  Operands product;
  product.q = x;
  product.k = View<const float>(rotation.data(), {B, H, half, D}, {0, 0, D, 1});
  for (int64_t n = 0; n < B * H; ++n)
    for (int64_t first = 0; first < L; first += kRows) {
      const int64_t rows = std::min(kRows, L - first);
      const std::vector<float> turned = logits(spec, product, n / H, n % H, first, rows, 0, half);
      for (int64_t i = 0; i < rows; ++i) {
        const float* row = turned.data() + i * half;
        const auto [least, most] = std::minmax_element(row, row + half);
        const int64_t best = *most >= -*least ? most - row : half + (least - row);
        result[n * L + first + i] = static_cast<int32_t>(best);
      }
    }
  return result;
}

void lsh_attention(const LshOptions& options, const Operands& operands, kernel::Parallel& parallel) {
  check_call(options, operands);
  const View<const float> q = operands.q.as<const float>();
  const View<const float> v = operands.v.as<const float>();
  const View<float> out = operands.out.as<float>();
  const int64_t B = q.size[0];
  const int64_t H = q.size[1];
  const int64_t L = q.size[2];
  if (B * H * L == 0) return;
  const kernel::Extents row_size{B, H, L, 1};
  std::vector<Owned> outs;
  std::vector<Owned> lses;
  for (int64_t n = 0; L > 1 && n < options.rounds; ++n) {
    const Round round(options, q, n);
    Owned sorted_q = round.gather(q);
    Owned sorted_k = round.gather(q, true);
    Owned sorted_v = round.gather(v);
    for (int half = 0; half < round.halves(); ++half) {
      Operands call = round.operands(half, sorted_q, sorted_k, sorted_v);
      Owned sorted_out({B * H, 1, L, v.size[3]});
      Owned sorted_lse({B * H, 1, L, 1});
      call.out = sorted_out.view();
      call.lse = sorted_lse.view();
      attention(round.spec(half), call, parallel);
      outs.emplace_back(out.size);
      lses.emplace_back(row_size);
      round.scatter([&](int64_t entry, int64_t at, int64_t b, int64_t h, int64_t row) {
        lses.back().view()(b, h, row, 0) = sorted_lse.view()(entry, 0, at, 0);
        std::copy_n(sorted_out.view().at(entry, 0, at), v.size[3], outs.back().view().at(b, h, row));
      });
    }
  }
  Owned own_lse(row_size);
  const View<float> lse = operands.lse ? operands.lse : own_lse.view();
  std::vector<PartialResult> parts;
  for (size_t i = 0; i < outs.size(); ++i) parts.push_back({outs[i].view(), lses[i].view()});
  if (!parts.empty()) merge(parts, out, lse, parallel);
  for (int64_t row = 0; row < B * H * L; ++row) {
    const int64_t b = row / (H * L);
    const int64_t h = row / L % H;
    const int64_t i = row % L;
    if (parts.empty()) lse(b, h, i, 0) = -HUGE_VALF;
    if (lse(b, h, i, 0) != -HUGE_VALF) continue;
    for (int64_t f = 0; f < v.size[3]; ++f) out(b, h, i, f) = v(b, h, i, f);
  }
}

void lsh_attention_backward(const LshOptions& options, const Operands& operands, const Arriving& arriving,
                            const Gradients& gradients, kernel::Parallel& parallel) {
  check_call(options, operands);
  check_plain_gradients("lsh_attention", gradients);
  if (gradients.k)
    throw std::invalid_argument("lsh_attention: a gradient of k is wanted; allowed: q and v, k is q");
  Operands shared = operands;
  shared.k = operands.q;
  check_backward({}, shared, arriving, gradients);
  if (arriving.out.dtype != kernel::DType::f32)
    throw std::invalid_argument("lsh_attention: the gradient of out is not f32; allowed: f32");
  const View<const float> q = operands.q.as<const float>();
  const View<const float> v = operands.v.as<const float>();
  const View<const float> grad_out = arriving.out.as<const float>();
  const int64_t B = q.size[0];
  const int64_t H = q.size[1];
  const int64_t L = q.size[2];
  const int64_t D = q.size[3];
  if (B * H * L == 0) return;
  Owned to_q(q.size);
  Owned to_k(q.size);
  Owned to_v(v.size);
  // A row alone with itself: its output is its value.
  for (int64_t row = 0; row < B * H * L; ++row) {
    const int64_t b = row / (H * L);
    const int64_t h = row / L % H;
    const int64_t i = row % L;
    if (operands.lse(b, h, i, 0) != -HUGE_VALF) continue;
    for (int64_t f = 0; f < v.size[3]; ++f) to_v.view()(b, h, i, f) = grad_out(b, h, i, f);
  }
  for (int64_t n = 0; L > 1 && n < options.rounds; ++n) {
    const Round round(options, q, n);
    Owned sorted_q = round.gather(q);
    Owned sorted_k = round.gather(q, true);
    Owned sorted_v = round.gather(v);
    // out and lse are those of the whole: see merge().
    Owned sorted_out = round.gather(View<const float>(operands.out.as<float>()));
    Owned sorted_lse = round.gather(View<const float>(operands.lse));
    Owned sorted_grad = round.gather(grad_out);
    Owned sorted_grad_lse;
    if (arriving.lse) sorted_grad_lse = round.gather(arriving.lse);
    for (int half = 0; half < round.halves(); ++half) {
      Operands call = round.operands(half, sorted_q, sorted_k, sorted_v);
      call.out = sorted_out.view();
      call.lse = sorted_lse.view();
      Arriving from{sorted_grad.const_view(), {}};
      if (arriving.lse) from.lse = sorted_grad_lse.const_view();
      Owned q_part({B * H, 1, L, D});
      Owned k_part({B * H, 1, L - 1, D});
      Owned v_part({B * H, 1, L - 1, v.size[3]});
      backward(round.spec(half), call, from, {q_part.view(), k_part.view(), v_part.view(), {}, {}, {}},
               parallel);
      round.scatter([&](int64_t entry, int64_t at, int64_t b, int64_t h, int64_t row) {
        for (int64_t d = 0; d < D; ++d) to_q.view()(b, h, row, d) += q_part.view()(entry, 0, at, d);
        const int64_t key = at - half;
        if (key < 0 || key >= L - 1) return;
        for (int64_t d = 0; d < D; ++d) to_k.view()(b, h, row, d) += k_part.view()(entry, 0, key, d);
        for (int64_t f = 0; f < v.size[3]; ++f) to_v.view()(b, h, row, f) += v_part.view()(entry, 0, key, f);
      });
    }
  }
  for (int64_t row = 0; row < B * H * L; ++row) {
    const int64_t b = row / (H * L);
    const int64_t h = row / L % H;
    const int64_t i = row % L;
    if (gradients.v)
      for (int64_t f = 0; f < v.size[3]; ++f) gradients.v.as<float>()(b, h, i, f) = to_v.view()(b, h, i, f);
    if (!gradients.q) continue;
    // k = q / |q|: what is along k is taken away.
    const double inverse = inverse_norm(q, b, h, i);
    double along = 0;
    for (int64_t d = 0; d < D; ++d)
      along += static_cast<double>(to_k.view()(b, h, i, d)) * static_cast<double>(q(b, h, i, d)) * inverse;
    for (int64_t d = 0; d < D; ++d)
      gradients.q.as<float>()(b, h, i, d) =
          static_cast<float>(static_cast<double>(to_q.view()(b, h, i, d)) +
                             inverse * (static_cast<double>(to_k.view()(b, h, i, d)) -
                                        along * static_cast<double>(q(b, h, i, d)) * inverse));
  }
}

}  // namespace regard::attention

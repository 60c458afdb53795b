#include "regard/layer/structured.h"

#include <ATen/ATen.h>

#include <cmath>
#include <stdexcept>
#include <string>

#include "regard/autograd/attention.h"

namespace regard::layer {
namespace {

// x with `rows` rows of zeros before axis `axis`.
at::Tensor pad_front(const at::Tensor& x, int64_t axis, int64_t rows) {
  if (rows == 0) return x;
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes[static_cast<size_t>(axis)] = rows;
  return at::cat({at::zeros(sizes, x.options()), x}, axis);
}

// Attention with a table of who may attend, or without.
at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& table) {
  attention::Spec spec;
  spec.scale = 1.0;
  autograd::AttentionExtras extras;
  if (table.defined()) {
    spec.mask = attention::Mask::dense();
    extras.dense_mask = table;
  }
  return autograd::attention(spec, q, k, v, extras);
}

// softmax over the last axis; what the table hides is 0, a row without anything too.
at::Tensor masked_softmax(const at::Tensor& logits, const at::Tensor& table) {
  if (!table.defined()) return at::softmax(logits, -1);
  const at::Tensor hidden = table.logical_not();
  return at::softmax(logits.masked_fill(hidden, -1e30), -1).masked_fill(hidden, 0.0);
}

}  // namespace

at::Tensor iterative_pinv(const at::Tensor& a, int64_t iterations, bool shared_start) {
  if (iterations < 0) throw std::invalid_argument("iterative_pinv: iterations must be 0 or more");
  at::Tensor columns = a.abs().sum(-2).amax(-1, true).unsqueeze(-1);
  at::Tensor rows = a.abs().sum(-1).amax(-1, true).unsqueeze(-1);
  if (shared_start) {
    columns = columns.max();
    rows = rows.max();
  }
  at::Tensor z = a.transpose(-1, -2) / (columns * rows);
  const at::Tensor eye = at::eye(a.size(-1), a.options());
  for (int64_t i = 0; i < iterations; ++i) {
    const at::Tensor az = at::matmul(a, z);
    const at::Tensor inner = at::matmul(az, 7 * eye - az);
    z = 0.25 * at::matmul(z, 13 * eye - at::matmul(az, 15 * eye - inner));
  }
  return z;
}

at::Tensor nystrom_attention(const NystromOptions& options, const at::Tensor& q, const at::Tensor& k,
                             const at::Tensor& v, const at::Tensor& mask) {
  const int64_t m = options.landmarks;
  const int64_t length = q.size(2);
  if (m < 1 || k.sizes() != q.sizes() || v.size(2) != length || v.size(1) != q.size(1)) {
    throw std::invalid_argument(
        "nystrom_attention: q, k and v must have equally many heads and rows, and landmarks must "
        "be at least 1");
  }
  const int64_t padded = (length + m - 1) / m * m;
  const int64_t group = padded / m;
  const auto pad = [&](const at::Tensor& x) { return pad_front(x, 2, padded - length); };
  at::Tensor real;  // [B, 1, padded]
  if (mask.defined()) {
    if (mask.dim() != 2 || mask.size(0) != q.size(0) || mask.size(1) != length) {
      throw std::invalid_argument("nystrom_attention: mask must be [batch, length]");
    }
    real = pad_front(mask.to(at::kBool), 1, padded - length).unsqueeze(1);
  }
  const double scale = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(q.size(3), 1)));
  const auto clean = [&](const at::Tensor& x) {
    return real.defined() ? pad(x).masked_fill(real.unsqueeze(-1).logical_not(), 0.0) : pad(x);
  };
  const at::Tensor all_q = clean(q) * scale;
  const at::Tensor all_k = clean(k);
  const at::Tensor all_v = clean(v);
  at::Tensor live;  // [B, 1, m]: landmarks of something
  const auto landmarks_of = [&](const at::Tensor& x) {
    const at::Tensor sum = x.unflatten(2, {m, group}).sum(3);
    if (!real.defined()) return sum / group;
    return sum / real.unflatten(2, {m, group}).sum(3).clamp_min(1).unsqueeze(-1);
  };
  at::Tensor to_landmarks, among_landmarks, from_landmarks;
  if (real.defined()) {
    live = real.unflatten(2, {m, group}).any(3);
    to_landmarks = real.unsqueeze(-1) & live.unsqueeze(-2);
    among_landmarks = live.unsqueeze(-1) & live.unsqueeze(-2);
    from_landmarks = live.unsqueeze(-1) & real.unsqueeze(-2);
  }
  const at::Tensor mean_q = landmarks_of(all_q);
  const at::Tensor mean_k = landmarks_of(all_k);
  const at::Tensor among = masked_softmax(at::matmul(mean_q, mean_k.transpose(-1, -2)), among_landmarks);
  const at::Tensor gathered = attend(mean_q, all_k, all_v, from_landmarks);
  const at::Tensor spread =
      at::matmul(iterative_pinv(among, options.iterations, options.shared_start), gathered);
  return attend(all_q, mean_k, spread, to_landmarks).narrow(2, padded - length, length);
}

Nystrom::Nystrom(const NystromOptions& options, int64_t width, int64_t heads, int64_t head_size,
                 int64_t kernel)
    : options_(options), heads_(heads), size_(head_size) {
  if (heads < 1 || head_size < 1 || kernel < 0 || (kernel > 0 && kernel % 2 == 0)) {
    throw std::invalid_argument(
        "Nystrom: heads and head_size must be at least 1, kernel odd or 0; kernel is " +
        std::to_string(kernel));
  }
  qkv_ = register_module("qkv", std::make_shared<Linear>(width, 3 * heads * head_size, false));
  out_ = register_module("out", std::make_shared<Linear>(heads * head_size, width));
  if (kernel == 0) return;
  const double bound = 1 / std::sqrt(static_cast<double>(kernel));
  convolution_ =
      register_parameter("convolution", at::empty({heads, 1, kernel, 1}, at::kFloat).uniform_(-bound, bound));
}

at::Tensor Nystrom::forward(const at::Tensor& x, const at::Tensor& mask) const {
  const auto parts = qkv_->forward(x).chunk(3, -1);
  const auto split = [&](const at::Tensor& part) {
    return part.reshape({x.size(0), x.size(1), heads_, size_}).transpose(1, 2);
  };
  at::Tensor v = split(parts[2]);
  at::Tensor mixed = nystrom_attention(options_, split(parts[0]), split(parts[1]), v, mask);
  if (convolution_.defined()) {
    if (mask.defined()) v = v.masked_fill(mask.to(at::kBool).logical_not().unsqueeze(1).unsqueeze(-1), 0.0);
    mixed = mixed + at::conv2d(v, convolution_, {}, at::IntArrayRef{1, 1},
                               at::IntArrayRef{convolution_.size(2) / 2, 0}, at::IntArrayRef{1, 1}, heads_);
  }
  return out_->forward(mixed.transpose(1, 2).reshape({x.size(0), x.size(1), heads_ * size_}));
}

Linformer::Linformer(int64_t length, int64_t rank, bool shared) {
  if (length < 1 || rank < 1) throw std::invalid_argument("Linformer: length and rank must be at least 1");
  const double deviation = 1 / std::sqrt(static_cast<double>(rank));
  const auto draw = [&] { return at::empty({rank, length}, at::kFloat).normal_(0, deviation); };
  key_projection_ = register_parameter("key_projection", draw());
  value_projection_ = shared ? key_projection_ : register_parameter("value_projection", draw());
}

at::Tensor Linformer::forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const {
  const int64_t length = k.size(2);
  if (length > key_projection_.size(1)) {
    throw std::invalid_argument("Linformer: the text has " + std::to_string(length) +
                                " positions; it reads at most " + std::to_string(key_projection_.size(1)));
  }
  return autograd::attention({}, q, at::matmul(key_projection_.narrow(1, 0, length), k),
                             at::matmul(value_projection_.narrow(1, 0, length), v));
}

}  // namespace regard::layer

#include "tests/attention/linear_problem.h"

#include <cmath>

namespace regard::testing {
namespace {

using attention::Denominator;
using attention::FeatureMap;
using kernel::DType;
using kernel::Extents;

// Uniform in [low, high].
void fill_uniform(Tensor& tensor, std::mt19937_64& random, double low, double high) {
  std::uniform_real_distribution<double> number(low, high);
  const Extents& size = tensor.size();
  for (int64_t b = 0; b < size[0]; ++b)
    for (int64_t h = 0; h < size[1]; ++h)
      for (int64_t p = 0; p < size[2]; ++p)
        for (int64_t f = 0; f < size[3]; ++f) tensor.set(b, h, p, f, static_cast<float>(number(random)));
}

}  // namespace

std::string LinearCase::to_string() const {
  return sizes.to_string() + " " + spec.to_string() + " chunk " + std::to_string(spec.chunk) + " gate " +
         std::to_string(static_cast<int>(gate)) + (delta ? " delta" : "") + (state ? " state" : "") +
         (lengths ? " lengths" : "") + " layout " + std::to_string(static_cast<int>(layout)) + " " +
         kernel::name(dtype);
}

LinearProblem::LinearProblem(const LinearCase& c, uint64_t seed)
    : spec(c.spec),
      q(c.dtype, {c.sizes.B, c.sizes.Hq, c.sizes.Lq, c.sizes.Dk}, c.layout),
      k(c.dtype, {c.sizes.B, c.sizes.Hkv, c.sizes.Lk, c.sizes.Dk}, c.layout),
      v(c.dtype, {c.sizes.B, c.sizes.Hkv, c.sizes.Lk, c.sizes.Dv}, c.layout),
      out(c.dtype, {c.sizes.B, c.sizes.Hq, c.sizes.Lq, c.sizes.Dv}, c.layout),
      denominators(DType::f32, {c.sizes.B, c.sizes.Hq, c.sizes.Lq, 1}) {
  std::mt19937_64 random(seed);
  const Sizes& s = c.sizes;
  // By the delta rule a key overwrites itself: keys of length about 1 keep the state bounded.
  const auto amplitude = c.delta ? static_cast<float>(1 / std::sqrt(static_cast<double>(s.Dk) + 1)) : 1.0F;
  q.fill_normal(random);
  k.fill_normal(random, amplitude);
  v.fill_normal(random);
  const bool divides = spec.denominator != Denominator::none;
  if (c.gate != Gate::none) {
    const bool feature = c.gate == Gate::feature;
    log_decay = c.gate == Gate::head ? Tensor(DType::f32, {1, s.Hkv, 1, 1})
                                     : Tensor(DType::f32, {s.B, s.Hkv, s.Lk, feature ? s.Dk : 1}, c.layout);
    fill_uniform(log_decay, random, -c.strongest, 0);
  }
  if (c.delta) {
    beta = Tensor(DType::f32, {s.B, s.Hkv, s.Lk, 1}, c.layout);
    fill_uniform(beta, random, 0, 1);
  }
  state_out = Tensor(DType::f32, {s.B, s.Hkv, s.Dk, s.Dv}, c.layout);
  if (divides) norm_out = Tensor(DType::f32, {s.B, s.Hkv, s.Dk, 1});
  if (c.state) {
    state = Tensor(DType::f32, state_out.size(), c.layout);
    state.fill_normal(random, amplitude);
    if (divides) {
      norm = Tensor(DType::f32, norm_out.size());
      fill_uniform(norm, random, 0.5, 2);
    }
  }
  if (c.lengths)
    for (int64_t b = 0; b < s.B; ++b)
      lengths.push_back(std::uniform_int_distribution<int64_t>(0, s.Lk)(random));
}

attention::LinearOperands LinearProblem::operands() {
  attention::LinearOperands call;
  call.q = q.view();
  call.k = k.view();
  call.v = v.view();
  call.out = out.view();
  call.denominators = denominators.as<float>();
  call.state_out = state_out.as<float>();
  const auto given = [](Tensor& tensor) {
    return tensor.size() == Extents{} ? kernel::View<float>() : tensor.as<float>();
  };
  call.norm_out = given(norm_out);
  call.log_decay = given(log_decay);
  call.beta = given(beta);
  call.state = given(state);
  call.norm = given(norm);
  if (!lengths.empty()) call.key_lengths = {lengths.data(), {static_cast<int64_t>(lengths.size()), 1, 1, 1}};
  return call;
}

LinearCase random_linear_case(std::mt19937_64& random) {
  const auto any = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  LinearCase c;
  static constexpr int64_t kLengths[] = {1, 2, 3, 5, 15, 16, 17, 31, 48, 63, 64, 65, 97, 128, 131, 200};
  static constexpr int64_t kFeatures[] = {1, 2, 5, 7, 8, 12, 15, 16, 17, 23, 31, 32, 33, 40, 64, 70};
  c.spec.causal = any(0, 3) > 0;
  c.sizes.B = any(1, 2);
  c.sizes.Hkv = any(1, 2);
  c.sizes.Hq = c.sizes.Hkv * any(1, 3);
  c.sizes.Lk = kLengths[any(0, 15)];
  c.sizes.Lq = c.spec.causal ? c.sizes.Lk : kLengths[any(0, 15)];
  c.sizes.Dk = kFeatures[any(0, 15)];
  c.sizes.Dv = kFeatures[any(0, 15)];
  c.spec.feature = static_cast<FeatureMap>(any(0, 2));
  c.delta = c.spec.causal && any(0, 2) == 0;
  if (c.delta) c.spec.feature = FeatureMap::identity;
  // Sums of features of either sign come near 0, where dividing by them means nothing.
  if (!c.delta && c.spec.feature != FeatureMap::identity && any(0, 1) == 0) {
    c.spec.denominator = static_cast<Denominator>(any(1, 2));
    c.spec.epsilon = c.spec.feature == FeatureMap::elu1 && any(0, 1) == 0 ? 1e-6 : 0.5;
  }
  if (c.spec.causal) c.gate = static_cast<Gate>(any(0, 3));
  if (any(0, 1) == 0) c.spec.scale = 0.3;
  if (any(0, 1) == 0) c.spec.chunk = any(2, 64);
  c.state = any(0, 1) == 0;
  c.lengths = any(0, 2) == 0;
  c.layout = static_cast<Layout>(any(0, 3));
  c.strongest = any(0, 1) == 0 ? 0.2 : 6;
  return c;
}

std::vector<double> doubles_of(const Tensor& tensor) {
  const std::vector<float> values = tensor.values();
  return {values.begin(), values.end()};
}

}  // namespace regard::testing

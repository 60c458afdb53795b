#pragma once

#include <algorithm>
#include <cmath>

namespace regard::attention {

// A number and its derivative by the raw score: what a score function computes with when its gradient is
// wanted. Plain numbers are constants.
struct Dual {
  float value = 0;
  float slope = 0;

  Dual() = default;
  Dual(float value) : value(value) {}  // NOLINT(google-explicit-constructor): constants mix freely
  Dual(float value, float slope) : value(value), slope(slope) {}

  friend Dual operator-(Dual a) { return {-a.value, -a.slope}; }
  friend Dual operator+(Dual a, Dual b) { return {a.value + b.value, a.slope + b.slope}; }
  friend Dual operator-(Dual a, Dual b) { return {a.value - b.value, a.slope - b.slope}; }
  friend Dual operator*(Dual a, Dual b) { return {a.value * b.value, a.slope * b.value + a.value * b.slope}; }
  friend Dual operator/(Dual a, Dual b) {
    const float ratio = a.value / b.value;
    return {ratio, (a.slope - ratio * b.slope) / b.value};
  }
  Dual& operator+=(Dual b) { return *this = *this + b; }
  Dual& operator-=(Dual b) { return *this = *this - b; }
  Dual& operator*=(Dual b) { return *this = *this * b; }
  Dual& operator/=(Dual b) { return *this = *this / b; }

  friend bool operator<(Dual a, Dual b) { return a.value < b.value; }
  friend bool operator>(Dual a, Dual b) { return a.value > b.value; }
  friend bool operator<=(Dual a, Dual b) { return a.value <= b.value; }
  friend bool operator>=(Dual a, Dual b) { return a.value >= b.value; }
};

inline Dual exp(Dual x) {
  const float e = std::exp(x.value);
  return {e, e * x.slope};
}
inline Dual log(Dual x) {
  return {std::log(x.value), x.slope / x.value};
}
inline Dual sqrt(Dual x) {
  const float root = std::sqrt(x.value);
  return {root, x.slope / (2 * root)};
}
inline Dual tanh(Dual x) {
  const float t = std::tanh(x.value);
  return {t, (1 - t * t) * x.slope};
}
inline Dual sin(Dual x) {
  return {std::sin(x.value), std::cos(x.value) * x.slope};
}
inline Dual cos(Dual x) {
  return {std::cos(x.value), -std::sin(x.value) * x.slope};
}
inline Dual abs(Dual x) {
  return x.value < 0 ? -x : x;
}
inline Dual pow(Dual x, float power) {
  return {std::pow(x.value, power), power * std::pow(x.value, power - 1) * x.slope};
}
// At a tie the first argument's derivative counts.
inline Dual min(Dual a, Dual b) {
  return b.value < a.value ? b : a;
}
inline Dual max(Dual a, Dual b) {
  return b.value > a.value ? b : a;
}

}  // namespace regard::attention

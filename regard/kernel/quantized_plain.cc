#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "regard/kernel/check_numbers.h"
#include "regard/kernel/dot_products.h"
#include "regard/kernel/quantized.h"
#include "regard/kernel/targets.h"

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#endif

namespace regard::kernel {
namespace {

constexpr int64_t kBlock = QuantizedLayout::kBlock;

std::vector<float> numbers(int64_t count, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    seed = seed * 1664525U + 1013904223U;
    value = static_cast<float>(seed >> 8) * 0x1p-23F - 1.0F;
  }
  return values;
}

// A small problem in one format, with tails of rows and columns.
class Problem {
 public:
  explicit Problem(QuantizedFormat format)
      : weights_(format, kRows, kColumns), x_(numbers(kInputs * kColumns, 3)) {
    const int64_t groups = (kColumns + format.group - 1) / format.group;
    const std::vector<float> scales = numbers(kRows * groups, 1), minima = numbers(kRows * groups, 2);
    std::vector<uint8_t> values(static_cast<size_t>(kColumns));
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t c = 0; c < kColumns; ++c)
        values[static_cast<size_t>(c)] =
            static_cast<uint8_t>((row * 71 + c * 37 + c * c) % (1 << format.bits));
      weights_.set_row(row, values.data(), scales.data() + row * groups, minima.data() + row * groups);
    }
  }

  template <class Run>
  std::vector<float> run(int64_t rows, Run&& product) const {
    std::vector<float> out(static_cast<size_t>(rows * kRows));
    QuantizedProduct p = problem(rows);
    p.out = out.data();
    Serial serial;
    product(p, check::Memory(quantized_workspace(p, 1)).bytes().data(), serial);
    return out;
  }

  bool is_right() const {
    std::vector<double> want(static_cast<size_t>(kInputs * kRows));
    QuantizedProduct p = problem(kInputs);
    quantized_product_plain(p, want.data());
    for (const int64_t rows : {int64_t{1}, kInputs}) {
      const std::vector<float> got =
          run(rows, [](const QuantizedProduct& product, std::byte* workspace, Parallel& parallel) {
            quantized_product(product, workspace, parallel);
          });
      for (size_t i = 0; i < got.size(); ++i)
        if (!(std::abs(got[i] - want[i]) < 1e-2)) return false;  // of numbers up to 1000
    }
    return true;
  }

  static constexpr int64_t kRows = 19, kColumns = 84, kInputs = 6;

 private:
  QuantizedProduct problem(int64_t rows) const {
    QuantizedProduct p;
    p.weights = &weights_;
    p.x = x_.data();
    p.x_stride = kColumns;
    p.rows = rows;
    p.out_stride = kRows;
    return p;
  }

  QuantizedMatrix weights_;
  std::vector<float> x_;
};

constexpr QuantizedFormat kAll[] = {{4, 32, false}, {4, 32, true},  {5, 32, false}, {5, 32, true},
                                    {6, 16, false}, {7, 32, false}, {8, 32, false}};

bool processor_has_them(const std::string& target) {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (target == "AVX3") return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (c >> 11 & 1) != 0;
  if (target == "AVX2") return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 4 & 1) != 0;
#elif defined(__aarch64__) && defined(__linux__)
  constexpr unsigned long kDotProducts = 1UL << 20;  // HWCAP_ASIMDDP
  if (target == "NEON") return (getauxval(AT_HWCAP) & kDotProducts) != 0;
#endif
  static_cast<void>(target);
  return false;
}

// Both ways sum integers exactly, so all bits must agree.
bool dot_products_are_right() {
  return std::all_of(std::begin(kAll), std::end(kAll), [](const QuantizedFormat& format) {
    const Problem problem(format);
    for (const int64_t rows : {int64_t{1}, Problem::kInputs}) {
      const auto with = [&](bool dot) {
        return problem.run(rows, [&](const QuantizedProduct& p, std::byte* workspace, Parallel& parallel) {
          quantized_product(p, dot, workspace, parallel);
        });
      };
      if (with(true) != with(false)) return false;
    }
    return true;
  });
}

}  // namespace

bool has_dot_products() {
  static const bool avx3 = processor_has_them("AVX3"), avx2 = processor_has_them("AVX2"),
                    neon = processor_has_them("NEON");
  if (!avx3 && !avx2 && !neon) return false;
  // Found once for each target that has them.
  static std::mutex mutex;
  static std::vector<std::pair<std::string, bool>> found;
  const std::string target = active_target();
  if (!processor_has_them(target)) return false;
  const std::lock_guard lock(mutex);
  for (const auto& [name, right] : found)
    if (name == target) return right;
  found.emplace_back(target, dot_products_are_right());
  return found.back().second;
}

void quantized_product_plain(const QuantizedProduct& product, double* out) {
  const QuantizedMatrix& weights = *product.weights;
  const int64_t columns = weights.columns();
  std::vector<float> w(static_cast<size_t>(columns));
  std::vector<double> x(static_cast<size_t>(columns));
  for (int64_t i = 0; i < product.rows; ++i) {
    for (int64_t begin = 0; begin < columns; begin += kBlock) {
      const int64_t end = std::min(columns, begin + kBlock);
      const float* from = product.x + i * product.x_stride;
      float largest = 0;
      bool finite = true;
      for (int64_t c = begin; c < end; ++c) {
        finite = finite && std::isfinite(from[c]);
        largest = std::max(largest, std::abs(from[c]));
      }
      const float inverse = largest > 1e-30F ? 127.0F / largest : 0.0F;
      for (int64_t c = begin; c < end; ++c)
        x[static_cast<size_t>(c)] =
            finite ? std::nearbyint(from[c] * inverse) * static_cast<double>(largest / 127.0F)
                   : std::numeric_limits<double>::quiet_NaN();
    }
    for (int64_t r = 0; r < weights.rows(); ++r) {
      weights.get_row(r, w.data());
      double sum = product.bias != nullptr ? product.bias[r] : 0.0;
      for (int64_t c = 0; c < columns; ++c)
        sum += static_cast<double>(w[static_cast<size_t>(c)]) * x[static_cast<size_t>(c)];
      if (product.epilogue == Epilogue::gelu) sum *= 0.5 * std::erfc(-sum * std::sqrt(0.5));
      out[i * weights.rows() + r] = sum;
    }
  }
}

bool quantized_self_check() {
  return std::all_of(std::begin(kAll), std::end(kAll),
                     [](const QuantizedFormat& format) { return Problem(format).is_right(); });
}

}  // namespace regard::kernel

#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "regard/attention/spec.h"

// Random attention problems that own their data, in odd shapes and memory layouts.
namespace regard::testing {

enum class Layout : uint8_t {
  contiguous,      // B H L D
  position_major,  // B L H D, as projections leave it
  spaced,          // every axis with a gap; the gaps hold NaN
  reversed,        // negative strides along positions and features
};

// Owned elements behind a view. Memory that belongs to no element holds NaN.
class Tensor {
 public:
  Tensor() = default;
  Tensor(kernel::DType dtype, const kernel::Extents& size, Layout layout = Layout::contiguous);

  void set(int64_t b, int64_t h, int64_t p, int64_t f, float value);
  float get(int64_t b, int64_t h, int64_t p, int64_t f) const;
  void fill_normal(std::mt19937_64& random, float amplitude = 1.0F);
  void fill(float value);
  std::vector<float> values() const;  // row-major

  kernel::AnyView view();
  kernel::ConstAnyView view() const;
  template <class T>
  kernel::View<T> as() {
    return view().as<T>();
  }
  const kernel::Extents& size() const { return size_; }

 private:
  int64_t index(int64_t b, int64_t h, int64_t p, int64_t f) const;

  kernel::DType dtype_ = kernel::DType::f32;
  kernel::Extents size_{};
  kernel::Extents stride_{};
  int64_t origin_ = 0;
  std::vector<float> floats_;
  std::vector<uint16_t> halves_;
};

struct Sizes {
  int64_t B = 1, Hq = 1, Hkv = 1, Lq = 1, Lk = 1, Dk = 1, Dv = 1;
  std::string to_string() const;
};

// q, k, v of a normal distribution; everything else is added by the test. operands() borrows.
struct Problem {
  Problem(const Sizes& sizes, uint64_t seed, kernel::DType dtype = kernel::DType::f32,
          Layout layout = Layout::contiguous, float amplitude = 1.0F);

  // Additions; shapes broadcast to [B, Hq, Lq, Lk].
  void add_bias(const kernel::Extents& size);
  void add_slopes();
  void add_sinks();
  void add_dense_mask(const kernel::Extents& size, double share_visible);
  void add_key_lengths();
  // Data for Mask::segments() and Mask::blocks(); the test puts the part into the mask.
  void make_segments(bool sorted);
  void make_blocks(int64_t block_rows, int64_t block_keys, double share_visible);

  attention::Operands operands();

  Sizes sizes;
  std::mt19937_64 random;
  attention::Spec spec;
  Tensor q, k, v, out, lse;
  Tensor bias, slopes, sinks;
  kernel::Extents mask_size{};
  std::vector<uint8_t> mask;
  std::vector<int64_t> lengths;
  std::vector<int32_t> query_segments, key_segments;
  kernel::Extents blocks_size{};
  std::vector<uint8_t> blocks;
  uint64_t dropout_seed = 0;
  uint64_t dropout_offset = 0;
  int64_t dropout_first_batch = 0;
};

}  // namespace regard::testing

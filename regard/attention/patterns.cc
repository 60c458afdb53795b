#include "regard/attention/patterns.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>

namespace regard::attention {
namespace {

void require(bool holds, const char* pattern, const char* argument, int64_t value, const char* allowed) {
  if (!holds) {
    throw std::invalid_argument(std::string(pattern) + ": " + argument + " is " + std::to_string(value) +
                                "; allowed: " + allowed);
  }
}

}  // namespace

Factorized sparse_transformer_strided(int64_t length, Align align) {
  require(length >= 1, "sparse_transformer_strided", "length", length, "1 or more");
  return {Mask::window(length, 0, align), Mask::causal(align) & Mask::stride(length, align)};
}

Factorized sparse_transformer_fixed(int64_t length, int64_t tail, Align align) {
  require(length >= 1, "sparse_transformer_fixed", "length", length, "1 or more");
  require(tail >= 0 && tail <= length, "sparse_transformer_fixed", "tail", tail, "0 to length");
  return {Mask::causal(align) & Mask::same_block(length, align),
          Mask::causal(align) & Mask::block_tail(length, tail)};
}

Mask atrous(int64_t period, int64_t window, Align align) {
  return Mask::stride(period, align) & Mask::window(window, window, align);
}

Mask local_or_strided(int64_t near, int64_t period, Align align) {
  require(near >= 0, "local_or_strided", "near", near, "0 or more");
  return Mask::window(near, near, align) | Mask::stride(period, align);
}

Mask longformer(int64_t window, int64_t global, Align align) {
  require(window >= 0 && window % 2 == 0, "longformer", "window", window, "an even number of 0 or more");
  return Mask::window(window / 2, window / 2, align) | Mask::prefix(global) | Mask::first_rows(global);
}

BlockPattern bigbird(const BigBirdOptions& options, int64_t heads, int64_t length) {
  require(options.block >= 1, "bigbird", "block", options.block, "1 or more");
  require(options.window >= 1 && options.window % 2 == 1, "bigbird", "window", options.window,
          "an odd number of 1 or more");
  require(options.global >= 0, "bigbird", "global", options.global, "0 or more");
  require(options.random >= 0, "bigbird", "random", options.random, "0 or more");
  require(heads >= 0, "bigbird", "heads", heads, "0 or more");
  require(length >= 0, "bigbird", "length", length, "0 or more");
  const int64_t blocks = (length + options.block - 1) / options.block;
  BlockPattern pattern{Mask::blocks(options.block, options.block), {}, {1, heads, blocks, blocks}};
  pattern.table.assign(static_cast<size_t>(heads * blocks * blocks), 0);
  std::mt19937_64 random(options.seed);  // its numbers are the same everywhere, distributions' are not
  std::vector<int64_t> others;
  for (int64_t at = 0; at < heads * blocks; ++at) {
    const int64_t row = at % blocks;
    uint8_t* keys = pattern.table.data() + at * blocks;
    const auto is_global = [&](int64_t b) { return b < options.global || b >= blocks - options.global; };
    others.clear();
    for (int64_t b = 0; b < blocks; ++b) {
      keys[b] = is_global(row) || is_global(b) || std::abs(b - row) <= options.window / 2;
      if (keys[b] == 0) others.push_back(b);
    }
    const int64_t drawn = std::min<int64_t>(options.random, static_cast<int64_t>(others.size()));
    for (int64_t r = 0; r < drawn; ++r) {  // the beginning of a shuffle
      const auto rest = static_cast<uint64_t>(others.size()) - static_cast<uint64_t>(r);
      std::swap(others[r], others[static_cast<size_t>(r) + random() % rest]);
      keys[others[r]] = 1;
    }
  }
  return pattern;
}

std::vector<int32_t> swin_segments(int64_t height, int64_t width, int64_t window, int64_t shift) {
  require(height >= 0, "swin_segments", "height", height, "0 or more");
  require(width >= 0, "swin_segments", "width", width, "0 or more");
  require(window >= 1, "swin_segments", "window", window, "1 or more");
  require(shift >= 0 && shift < window, "swin_segments", "shift", shift, "0 to window - 1");
  const int64_t cut = (window - shift) % window;  // of the first window
  const int64_t across = width / window + 2;
  require((height / window + 2) * across < (int64_t{1} << 31), "swin_segments", "height", height,
          "fewer than 2^31 windows");
  std::vector<int32_t> numbers;
  numbers.reserve(static_cast<size_t>(height * width));
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      numbers.push_back(static_cast<int32_t>((y + cut) / window * across + (x + cut) / window));
    }
  }
  return numbers;
}

}  // namespace regard::attention

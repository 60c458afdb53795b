#pragma once

#include <cstdint>
#include <vector>

#include "regard/attention/mask.h"
#include "regard/kernel/view.h"

// Published sparse patterns, by name. Each is a Mask, and data where it needs some.
namespace regard::attention {

// A pattern in two factors. The paper gives them to separate heads or to alternate layers; `merged` is what
// one head sees that has both.
struct Factorized {
  Mask local;
  Mask summary;
  Mask merged() const { return local | summary; }
};

// Sparse Transformer, strided (Child et al. 2019, arXiv 1904.10509, section 4.3): the previous `length`
// positions and the row itself; and every length-th position before it. For data with a period, as images.
Factorized sparse_transformer_strided(int64_t length, Align align);

// Sparse Transformer, fixed (the same section): the row's own block of `length` positions as far as it goes;
// and the last `tail` positions of each block, which sum it up. For text. 0 <= tail <= length.
Factorized sparse_transformer_fixed(int64_t length, int64_t tail, Align align);

// Atrous self-attention: keys whose distance is a multiple of `period`, within `window` positions on both
// sides (-1: any distance). Alone it keeps the residue classes modulo the period apart in any number of
// layers. (Su 2019, "Sparse attention for economy", https://kexue.fm/archives/6853; the dilated window of
// Longformer, section 3.1.)
Mask atrous(int64_t period, int64_t window, Align align);

// Near or in step: distances up to `near`, and multiples of `period` (Su 2019, the same page; the picture of
// Child et al. 2019 for both directions).
Mask local_or_strided(int64_t near, int64_t period, Align align);

// Longformer (Beltagy et al. 2020, arXiv 2004.05150, section 3.1): `window` / 2 keys on each side, and the
// first `global` tokens see and are seen by all. window is even. The separate projections of global tokens
// are a layer's business.
Mask longformer(int64_t window, int64_t global, Align align);

// BigBird (Zaheer et al. 2020, arXiv 2007.14062, section 2): blocks of `block` tokens; each
// sees `window` blocks around it (odd), the first and the last `global` blocks, which see everything, and
// `random` more blocks, drawn for each head.
struct BigBirdOptions {
  int64_t block = 64;
  int64_t window = 3;
  int64_t global = 1;  // at each end
  int64_t random = 3;
  uint64_t seed = 0;
};
struct BlockPattern {
  Mask mask;                   // Mask::blocks(block, block)
  std::vector<uint8_t> table;  // [1, heads, blocks, blocks]
  kernel::Extents size;
  kernel::View<const uint8_t> view() const { return {table.data(), size}; }  // for Operands::block_mask
};
// For Lq == Lk == length. The same seed gives the same table on every machine.
BlockPattern bigbird(const BigBirdOptions& options, int64_t heads, int64_t length);

// Swin Transformer (Liu et al. 2021, arXiv 2103.14030, section 3.2): disjoint windows x window squares of a
// grid, moved down and right by `shift`, as numbers for Mask::segments(): Operands::query_segments and
// key_segments alike, [1, 1, 1, height * width]. Windows that the shift cuts off at the border stay apart,
// as the paper's masked cyclic shift keeps them.
std::vector<int32_t> swin_segments(int64_t height, int64_t width, int64_t window, int64_t shift);

}  // namespace regard::attention

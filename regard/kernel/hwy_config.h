#pragma once

// Which instruction sets the kernels are compiled for; include before any Highway header. Kept: AVX2, AVX3
// (AVX-512), NEON and the baseline that every machine runs. The others cost build time without gain: x86-64
// without AVX2 runs the baseline, SVE machines run NEON (arrays of vectors do not compile for sizeless
// types).
#define HWY_DISABLED_TARGETS                                                                             \
  (REGARD_DISABLED_AVX3 | HWY_SSE2 | HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_AVX3_ZEN4 | HWY_AVX3_SPR | \
   HWY_AVX10_2 | HWY_NEON_BF16 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_PPC8 | HWY_PPC9 | \
   HWY_PPC10 | HWY_WASM | HWY_WASM_EMU256 | HWY_RVV)

#ifdef REGARD_WITHOUT_AVX512  // builds with sanitizers: one target, the least that the flags ask for
#define REGARD_DISABLED_AVX3 HWY_AVX3
#else
#define REGARD_DISABLED_AVX3 0
#endif

#include <hwy/detect_targets.h>

// Names that this Highway does not know yet (Debian 12 has 1.0.3) stand for no target.
#ifndef HWY_SSE2
#define HWY_SSE2 0
#endif
#ifndef HWY_AVX3_ZEN4
#define HWY_AVX3_ZEN4 0
#endif
#ifndef HWY_AVX3_SPR
#define HWY_AVX3_SPR 0
#endif
#ifndef HWY_AVX10_2
#define HWY_AVX10_2 0
#endif
#ifndef HWY_NEON_BF16
#define HWY_NEON_BF16 0
#endif
#ifndef HWY_PPC9
#define HWY_PPC9 0
#endif
#ifndef HWY_PPC10
#define HWY_PPC10 0
#endif

#include "regard/kernel/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "regard/kernel/prefill.cc"
#include "regard/kernel/hwy_config.h"

#include <hwy/foreach_target.h>

#include "regard/kernel/pages-inl.h"
#include "regard/kernel/prefill-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

// Products of vectors of type T, or of whatever type lies in pages.
template <class T>
struct PackedDots : DotScores<T> {
  using DotScores<T>::DotScores;

  void pack(const Forward& p, int64_t batch, int64_t head, int64_t begin, int64_t end, const Panels& panels,
            float* staging) const {
    if (p.pages) {
      return with_type(p.pages.type, [&](auto element) HWY_ATTR {
        pack_pages<decltype(element)>(p, batch, head, begin, end, staging, panels.keys, panels.values,
                                      panels.key_stride, panels.nonfinite);
      });
    }
    pack_keys(p.k.as<const T>(), batch, head, begin, end, staging, panels.keys);
    if (p.out)
      pack_values(p.v.as<const T>(), batch, head, begin, end, panels.key_stride, panels.values,
                  panels.nonfinite);
  }
};

void Prefill(const Forward& p, const ForwardTiling& tiling, std::byte* workspace, Parallel& parallel) {
  with_type(p.q.dtype, [&](auto element) HWY_ATTR {
    const PrefillLayout layout(p, tiling, parallel.workers());
    run_prefill(p, layout, PackedDots<decltype(element)>(p), tiling, workspace, parallel);
  });
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "regard/kernel/dispatch.h"

namespace regard::kernel {

HWY_EXPORT(Prefill);

void prefill(const Forward& problem, const ForwardTiling& tiling, std::byte* workspace, Parallel& parallel) {
  REGARD_DISPATCH(Prefill)(problem, tiling, workspace, parallel);
}

}  // namespace regard::kernel

#endif  // HWY_ONCE

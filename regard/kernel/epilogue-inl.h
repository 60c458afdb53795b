// What products do with a vector of sums.
#if defined(REGARD_KERNEL_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNEL_EPILOGUE_INL_H_
#undef REGARD_KERNEL_EPILOGUE_INL_H_
#else
#define REGARD_KERNEL_EPILOGUE_INL_H_
#endif

#include "regard/kernel/epilogue.h"
#include "regard/kernel/some-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

// x Phi(x), Phi the normal distribution. Its tail Q(z) = exp(-z^2 / 2) t P(t) with t = 1 / (1 + 0.3 z), P a
// minimax polynomial: relative error of the tail 1.5e-7, nothing cancels where x is far below 0.
HWY_INLINE Vec gelu(D d, Vec x) {
  const Vec one = hn::Set(d, 1.0F);
  const Vec z = hn::Abs(x);
  const Vec t = hn::Div(one, hn::MulAdd(hn::Set(d, 0.3F), z, one));
  Vec p = hn::Set(d, 0.03567448630928993F);
  p = hn::MulAdd(p, t, hn::Set(d, -0.15720176696777344F));
  p = hn::MulAdd(p, t, hn::Set(d, 0.20635107159614563F));
  p = hn::MulAdd(p, t, hn::Set(d, -0.053681258112192154F));
  p = hn::MulAdd(p, t, hn::Set(d, 0.12856028974056244F));
  p = hn::MulAdd(p, t, hn::Set(d, 0.09991391748189926F));
  p = hn::MulAdd(p, t, hn::Set(d, 0.12075388431549072F));
  p = hn::MulAdd(p, t, hn::Set(d, 0.11962930113077164F));
  const Vec e = exp2(d, hn::Mul(hn::Mul(z, z), hn::Set(d, -0.5F * kLog2e)));
  const Vec tail = hn::Mul(hn::Mul(e, t), p);
  const auto is_negative = hn::Lt(x, hn::Zero(d));
  // Infinities have the tail 0 and must not meet it.
  const Vec held = hn::Min(hn::Max(x, hn::Set(d, -100.0F)), hn::Set(d, 100.0F));
  return hn::IfThenElse(is_negative, hn::Mul(held, tail), hn::NegMulAdd(held, tail, x));
}

HWY_INLINE Vec finished(D d, Epilogue epilogue, Vec x) {
  return epilogue == Epilogue::gelu ? gelu(d, x) : x;
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle guard

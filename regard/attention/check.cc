#include <cmath>
#include <limits>
#include <sstream>
#include <stdexcept>

#include "regard/attention/lower.h"
#include "regard/attention/spec.h"
#include "regard/attention/view_fault.h"

namespace regard::attention {
namespace {

using kernel::Extents;

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream out;
  out << "attention: ";
  (out << ... << parts);
  throw std::invalid_argument(out.str());
}

void refuse(const std::string& fault) {
  if (!fault.empty()) fail(fault);
}

template <class V>
void check_view(const char* name, const V& view) {
  refuse(size_fault(name, view));
  refuse(storage_fault(name, view));
}

template <class V>
void check_output(const char* name, const V& view) {
  refuse(sharing_fault(name, view));
}

template <class V>
void check_size(const char* name, const V& view, const Extents& size, const char* axes) {
  if (view.size != size) {
    fail(name, " has sizes ", text(view.size), "; allowed: ", axes, " = ", text(size));
  }
}

template <class V>
void check_broadcast(const char* name, const V& view, const Extents& size, const char* axes) {
  check_view(name, view);
  for (int axis = 0; axis < 4; ++axis) {
    if (view.size[axis] != size[axis] && view.size[axis] != 1) {
      fail(name, " has sizes ", text(view.size), "; allowed: each of ", axes, " = ", text(size), ", or 1");
    }
  }
}

void check_spec(const Spec& spec) {
  if (spec.scale && !std::isfinite(*spec.scale)) fail("scale is ", *spec.scale, "; allowed: a finite number");
  if (!std::isfinite(spec.softcap) || spec.softcap < 0) {
    fail("softcap is ", spec.softcap, "; allowed: a finite number above 0, or 0 for none");
  }
  // Not above 65535 / 65536: something must be left to divide by.
  if (!(spec.dropout >= 0 && spec.dropout * 65536 < 65535.5)) {
    fail("dropout is ", spec.dropout, "; allowed: a probability of at least 0 and below 1");
  }
}

void check_qkv(const Operands& operands) {
  const ConstAnyView& q = operands.q;
  const ConstAnyView& k = operands.k;
  const ConstAnyView& v = operands.v;
  check_view("q", q);
  check_view("k", k);
  if (k.dtype != q.dtype) {
    fail("k is of type ", kernel::name(k.dtype), "; allowed: the type of q, ", kernel::name(q.dtype));
  }
  if (q.size[1] == 0 || k.size[1] == 0 || q.size[1] % k.size[1] != 0) {
    fail("k has ", k.size[1], " heads; allowed: a divisor of the ", q.size[1],
         " heads of q, both at least 1");
  }
  check_size("k", k, {q.size[0], k.size[1], k.size[2], q.size[3]}, "[B, Hkv, Lk, Dk]");
  if (!is_given(v)) return;
  check_view("v", v);
  if (v.dtype != q.dtype) {
    fail("v is of type ", kernel::name(v.dtype), "; allowed: the type of q, ", kernel::name(q.dtype));
  }
  check_size("v", v, {k.size[0], k.size[1], k.size[2], v.size[3]}, "[B, Hkv, Lk, Dv]");
}

void check_options(const Spec& spec, const Operands& operands) {
  const Extents& q = operands.q.size;
  const Extents square{q[0], q[1], q[2], operands.k.size[2]};
  const Extents heads{q[0], q[1], 1, 1};
  if (is_given(operands.bias)) check_broadcast("bias", operands.bias, square, "[B, Hq, Lq, Lk]");
  if (is_given(operands.slopes)) {
    check_broadcast("slopes", operands.slopes, heads, "[B, Hq, 1, 1]");
    if (operands.slopes.size[1] != q[1]) check_size("slopes", operands.slopes, heads, "[B or 1, Hq, 1, 1]");
  }
  if (is_given(operands.sinks)) {
    check_broadcast("sinks", operands.sinks, heads, "[B, Hq, 1, 1]");
    if (operands.sinks.size[1] != q[1]) check_size("sinks", operands.sinks, heads, "[B or 1, Hq, 1, 1]");
  }
  if (is_given(operands.dense_mask)) {
    if (!spec.mask.uses_dense()) {
      fail("dense_mask is given but the mask is ", spec.mask.to_string(), "; allowed: with Mask::dense()");
    }
    check_broadcast("dense_mask", operands.dense_mask, square, "[B, Hq, Lq, Lk]");
  } else if (spec.mask.uses_dense() && !is_empty(square)) {
    fail("dense_mask is missing but the mask is ", spec.mask.to_string(), "; allowed: a broadcast of ",
         "[B, Hq, Lq, Lk] = ", text(square));
  }
  if (is_given(operands.key_lengths)) {
    if (!spec.mask.uses_key_lengths()) {
      fail("key_lengths is given but the mask is ", spec.mask.to_string(),
           "; allowed: with Mask::key_lengths()");
    }
    check_broadcast("key_lengths", operands.key_lengths, {q[0], 1, 1, 1}, "[B, 1, 1, 1]");
  } else if (spec.mask.uses_key_lengths() && q[0] > 0) {
    fail("key_lengths is missing but the mask is ", spec.mask.to_string(), "; allowed: [B or 1, 1, 1, 1]");
  }
}

// Sizes and presence of what the parts of a mask need.
void check_mask(const Spec& spec, const Operands& operands) {
  const Extents& q = operands.q.size;
  const int64_t keys = operands.k.size[2];
  const bool segments = spec.mask.uses<part::Segments>();
  const auto check_segments = [&](const char* name, const View<const int32_t>& numbers, int64_t length) {
    if (is_given(numbers)) {
      if (!segments) {
        fail(name, " is given but the mask is ", spec.mask.to_string(), "; allowed: with Mask::segments()");
      }
      check_broadcast(name, numbers, {q[0], 1, 1, length}, "[B, 1, 1, L]");
      if (numbers.size[3] != length) check_size(name, numbers, {q[0], 1, 1, length}, "[B or 1, 1, 1, L]");
    } else if (segments && q[0] * length > 0) {
      fail(name, " is missing but the mask is ", spec.mask.to_string(), "; allowed: [B or 1, 1, 1, ", length,
           "]");
    }
  };
  check_segments("query_segments", operands.query_segments, q[2]);
  check_segments("key_segments", operands.key_segments, keys);
  if (is_given(operands.block_mask) && !spec.mask.uses<part::Blocks>()) {
    fail("block_mask is given but the mask is ", spec.mask.to_string(), "; allowed: with Mask::blocks()");
  }
  for (const Mask::Term& term : spec.mask.terms()) {
    for (const Mask::Part& part : term) {
      if (const auto* blocks = std::get_if<part::Blocks>(&part)) {
        const auto count = [](int64_t size, int64_t block) { return size / block + (size % block != 0); };
        const Extents size{q[0], q[1], count(q[2], blocks->rows), count(keys, blocks->keys)};
        if (is_given(operands.block_mask)) {
          check_broadcast("block_mask", operands.block_mask, size, "[B, Hq, blocks of rows, blocks of keys]");
        } else if (!is_empty(size)) {
          fail("block_mask is missing but the mask is ", spec.mask.to_string(), "; allowed: a broadcast of ",
               "[B, Hq, blocks of rows, blocks of keys] = ", text(size));
        }
      }
      if (const auto* grid = std::get_if<part::Neighbourhood>(&part)) {
        const int64_t cells = grid->height * grid->width;
        if (q[2] != cells || keys != cells) {
          fail("the mask is ", spec.mask.to_string(), " but there are ", q[2], " queries and ", keys,
               " keys; allowed: ", cells, " of both, one for each place of the grid");
        }
      }
    }
  }
  if (operands.dropout_first_batch < 0) {
    fail("dropout_first_batch is ", operands.dropout_first_batch, "; allowed: 0 or more");
  }
}

}  // namespace

void check_data(const Operands& operands) {
  const auto& lengths = operands.key_lengths;
  if (!is_given(lengths) || is_empty(lengths.size)) return;
  for (int64_t b = 0; b < lengths.size[0]; ++b) {
    const int64_t length = lengths.data[b * lengths.stride[0]];
    if (length < 0 || length > operands.k.size[2]) {
      fail("key_lengths[", b, "] is ", length, "; allowed: 0 to Lk = ", operands.k.size[2]);
    }
  }
}

void check_form(const Spec& spec, const Operands& operands) {
  check_spec(spec);
  check_qkv(operands);
  const Extents& q = operands.q.size;
  if (!is_given(operands.v)) fail("v is missing; allowed: [B, Hkv, Lk, Dv]");
  check_options(spec, operands);
  check_mask(spec, operands);
  const AnyView& out = operands.out;
  check_view("out", out);
  check_size("out", out, {q[0], q[1], q[2], operands.v.size[3]}, "[B, Hq, Lq, Dv]");
  check_output("out", out);
  if (out.dtype != kernel::DType::f32 && out.dtype != operands.q.dtype) {
    fail("out is of type ", kernel::name(out.dtype), "; allowed: f32 or the type of q, ",
         kernel::name(operands.q.dtype));
  }
  if (is_given(operands.lse)) {
    check_lse(operands, operands.lse);
    check_output("lse", operands.lse);
  }
}

void check(const Spec& spec, const Operands& operands) {
  check_form(spec, operands);
  check_data(operands);
}

void check_inputs(const Spec& spec, const Operands& operands) {
  check_spec(spec);
  check_qkv(operands);
  check_options(spec, operands);
  check_mask(spec, operands);
  check_data(operands);
}

void check_lse(const Operands& operands, View<const float> lse) {
  const Extents& q = operands.q.size;
  check_view("lse", lse);
  check_size("lse", lse, {q[0], q[1], q[2], 1}, "[B, Hq, Lq, 1]");
}

namespace {

template <class V>
void check_gradient(const char* name, const V& gradient, const Extents& size, const char* operand) {
  if (!is_given(gradient)) return;
  check_view(name, gradient);
  check_size(name, gradient, size, operand);
  check_output(name, gradient);
}

void check_gradient_type(const char* name, const ConstAnyView& gradient, kernel::DType inputs) {
  if (is_given(gradient) && gradient.dtype != kernel::DType::f32 && gradient.dtype != inputs) {
    fail(name, " is of type ", kernel::name(gradient.dtype), "; allowed: f32 or the type of q, ",
         kernel::name(inputs));
  }
}

}  // namespace

void check_backward(const Spec& spec, const Operands& operands, const Arriving& arriving,
                    const Gradients& gradients) {
  check_form(spec, operands);
  check_lse(operands, operands.lse);
  const Extents& q = operands.q.size;
  check_view("the gradient of out", arriving.out);
  check_size("the gradient of out", arriving.out, {q[0], q[1], q[2], operands.v.size[3]}, "[B, Hq, Lq, Dv]");
  check_gradient_type("the gradient of out", arriving.out, operands.q.dtype);
  if (is_given(arriving.lse)) {
    check_view("the gradient of lse", arriving.lse);
    check_size("the gradient of lse", arriving.lse, {q[0], q[1], q[2], 1}, "[B, Hq, Lq, 1]");
  }
  check_gradient("the gradient of q", gradients.q, operands.q.size, "the sizes of q");
  check_gradient("the gradient of k", gradients.k, operands.k.size, "the sizes of k");
  check_gradient("the gradient of v", gradients.v, operands.v.size, "the sizes of v");
  check_gradient_type("the gradient of q", gradients.q, operands.q.dtype);
  check_gradient_type("the gradient of k", gradients.k, operands.q.dtype);
  check_gradient_type("the gradient of v", gradients.v, operands.q.dtype);
  check_gradient("the gradient of bias", gradients.bias, operands.bias.size, "the sizes of bias");
  check_gradient("the gradient of slopes", gradients.slopes, operands.slopes.size, "the sizes of slopes");
  check_gradient("the gradient of sinks", gradients.sinks, operands.sinks.size, "the sizes of sinks");
}

int64_t element_count(const char* what, const Extents& size) {
  int64_t count = 1;
  for (const int64_t extent : size) {
    if (__builtin_mul_overflow(count, extent, &count) || count >= int64_t{1} << 60) {
      fail(what, " would have sizes ", text(size), "; allowed: below 2^60 elements");
    }
  }
  return count;
}

}  // namespace regard::attention

#include <cmath>
#include <limits>
#include <sstream>
#include <stdexcept>

#include "regard/attention/linear_check.h"
#include "regard/attention/view_fault.h"

namespace regard::attention {
namespace {

using kernel::Extents;

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream out;
  out << "linear attention: ";
  (out << ... << parts);
  throw std::invalid_argument(out.str());
}

void refuse(const std::string& fault) {
  if (!fault.empty()) fail(fault);
}

// The sizes wanted, and what storage_fault() asks.
template <class V>
void check_view(const char* name, const V& view, const Extents& size, const char* axes) {
  refuse(size_fault(name, view));
  if (view.size != size) fail(name, " has sizes ", text(view.size), "; allowed: ", axes, " = ", text(size));
  refuse(storage_fault(name, view));
}

template <class V>
void check_output(const char* name, const V& view, const Extents& size, const char* axes) {
  if (!is_given(view)) return;
  check_view(name, view, size, axes);
  refuse(sharing_fault(name, view));
}

// Each axis that of `size` or 1.
template <class V>
void check_broadcast(const char* name, const V& view, const Extents& size, const char* axes) {
  Extents wanted = size;
  for (int axis = 0; axis < 4; ++axis)
    if (view.size[axis] == 1) wanted[axis] = 1;
  if (view.size != wanted)
    fail(name, " has sizes ", text(view.size), "; allowed: each of ", axes, " = ", text(size), ", or 1");
  check_view(name, view, wanted, axes);
}

template <class V>
void check_type(const char* name, const V& view, kernel::DType inputs) {
  if (is_given(view) && view.dtype != kernel::DType::f32 && view.dtype != inputs)
    fail(name, " is of type ", kernel::name(view.dtype), "; allowed: f32 or the type of q, ",
         kernel::name(inputs));
}

void check_spec(const LinearSpec& spec) {
  if (!std::isfinite(spec.scale)) fail("scale is ", spec.scale, "; allowed: a finite number");
  if (!(spec.epsilon >= 0) || !std::isfinite(spec.epsilon))
    fail("epsilon is ", spec.epsilon, "; allowed: a finite number of at least 0");
  if (spec.chunk != 0 && (spec.chunk < 2 || spec.chunk > kernel::kMaxLinearChunk))
    fail("chunk is ", spec.chunk, "; allowed: 2 to ", kernel::kMaxLinearChunk, ", or 0: by the sizes");
  if (spec.form == LinearForm::recurrent && !spec.causal)
    fail("form is recurrent and causal is false; allowed: recurrent with causal");
}

}  // namespace

void check_linear_form(const LinearSpec& spec, const LinearOperands& operands) {
  check_spec(spec);
  const ConstAnyView& q = operands.q;
  const ConstAnyView& k = operands.k;
  const ConstAnyView& v = operands.v;
  check_view("q", q, q.size, "[B, Hq, Lq, Dk]");
  if (q.size[1] == 0 || k.size[1] <= 0 || q.size[1] % k.size[1] != 0)
    fail("k has ", k.size[1], " heads; allowed: a divisor of the ", q.size[1],
         " heads of q, both at least 1");
  check_view("k", k, {q.size[0], k.size[1], k.size[2], q.size[3]}, "[B, Hkv, Lk, Dk]");
  check_view("v", v, {k.size[0], k.size[1], k.size[2], v.size[3]}, "[B, Hkv, Lk, Dv]");
  for (const auto& [name, view] : {std::pair("k", k), std::pair("v", v)})
    if (view.dtype != q.dtype)
      fail(name, " is of type ", kernel::name(view.dtype), "; allowed: the type of q, ",
           kernel::name(q.dtype));
  if (spec.causal && q.size[2] != k.size[2])
    fail("q has ", q.size[2], " rows and k ", k.size[2], "; allowed with causal: as many of both");
  const Extents per_key{k.size[0], k.size[1], k.size[2], 1};
  const Extents per_row{q.size[0], q.size[1], q.size[2], 1};
  const Extents state{k.size[0], k.size[1], k.size[3], v.size[3]};
  const Extents norm{k.size[0], k.size[1], k.size[3], 1};
  const bool divides = spec.denominator != Denominator::none;
  if (is_given(operands.log_decay)) {
    if (!spec.causal) fail("log_decay is given and causal is false; allowed: with causal");
    check_broadcast("log_decay", operands.log_decay, k.size, "[B, Hkv, Lk, Dk]");
  }
  if (is_given(operands.beta)) {
    if (!spec.causal) fail("beta is given and causal is false; allowed: with causal");
    if (divides) fail("beta is given with a denominator; allowed: with Denominator::none");
    check_broadcast("beta", operands.beta, per_key, "[B, Hkv, Lk, 1]");
  }
  if (is_given(operands.state)) check_view("state", operands.state, state, "[B, Hkv, Dk, Dv]");
  if (is_given(operands.norm)) {
    if (!divides) fail("norm is given without a denominator; allowed: with one");
    check_view("norm", operands.norm, norm, "[B, Hkv, Dk, 1]");
  }
  if (is_given(operands.norm_out) && !divides)
    fail("norm_out is given without a denominator; allowed: with one");
  if (is_given(operands.key_lengths))
    check_broadcast("key_lengths", operands.key_lengths, {q.size[0], 1, 1, 1}, "[B, 1, 1, 1]");
  check_output("out", operands.out, {q.size[0], q.size[1], q.size[2], v.size[3]}, "[B, Hq, Lq, Dv]");
  check_type("out", operands.out, q.dtype);
  check_output("denominators", operands.denominators, per_row, "[B, Hq, Lq, 1]");
  check_output("state_out", operands.state_out, state, "[B, Hkv, Dk, Dv]");
  check_output("norm_out", operands.norm_out, norm, "[B, Hkv, Dk, 1]");
}

void check_linear_data(const LinearOperands& operands) {
  const auto& lengths = operands.key_lengths;
  if (!lengths) return;
  for (int64_t b = 0; b < lengths.size[0]; ++b) {
    const int64_t length = lengths(b, 0, 0, 0);
    if (length < 0 || length > operands.k.size[2])
      fail("key_lengths[", b, "] is ", length, "; allowed: 0 to Lk = ", operands.k.size[2]);
  }
}

void check_linear_backward(const LinearSpec& spec, const LinearOperands& operands,
                           const LinearArriving& arriving, const LinearGradients& gradients) {
  check_linear_form(spec, operands);
  const Extents& q = operands.q.size;
  const Extents& k = operands.k.size;
  const Extents out{q[0], q[1], q[2], operands.v.size[3]};
  const Extents state{k[0], k[1], k[3], operands.v.size[3]};
  const Extents norm{k[0], k[1], k[3], 1};
  if (spec.denominator != Denominator::none) {
    check_view("out", operands.out, out, "[B, Hq, Lq, Dv]");
    check_view("denominators", operands.denominators, {q[0], q[1], q[2], 1}, "[B, Hq, Lq, 1]");
  }
  if (is_given(arriving.out)) check_view("the gradient of out", arriving.out, out, "[B, Hq, Lq, Dv]");
  check_type("the gradient of out", arriving.out, operands.q.dtype);
  if (is_given(arriving.state))
    check_view("the gradient of state_out", arriving.state, state, "[B, Hkv, Dk, Dv]");
  if (is_given(arriving.norm)) check_view("the gradient of norm_out", arriving.norm, norm, "[B, Hkv, Dk, 1]");
  const auto check_gradient = [&](const char* name, const auto& view, const Extents& size) {
    check_output(name, view, size, "the sizes of its operand");
  };
  check_gradient("the gradient of q", gradients.q, q);
  check_gradient("the gradient of k", gradients.k, k);
  check_gradient("the gradient of v", gradients.v, operands.v.size);
  check_type("the gradient of q", gradients.q, operands.q.dtype);
  check_type("the gradient of k", gradients.k, operands.q.dtype);
  check_type("the gradient of v", gradients.v, operands.q.dtype);
  check_gradient("the gradient of log_decay", gradients.log_decay, operands.log_decay.size);
  check_gradient("the gradient of beta", gradients.beta, operands.beta.size);
  check_gradient("the gradient of state", gradients.state, state);
  check_gradient("the gradient of norm", gradients.norm, norm);
  if (is_given(gradients.norm) && spec.denominator == Denominator::none)
    fail("the gradient of norm is asked for without a denominator; allowed: with one");
}

void check(const LinearSpec& spec, const LinearOperands& operands) {
  check_linear_form(spec, operands);
  check_linear_data(operands);
}

}  // namespace regard::attention

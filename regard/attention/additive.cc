#include "regard/attention/additive.h"

#include <stdexcept>
#include <string>

#include "regard/attention/lower.h"
#include "regard/attention/scratch.h"
#include "regard/kernel/additive.h"

namespace regard::attention {
namespace {

[[noreturn]] void fail(const std::string& what, const std::string& allowed) {
  throw std::invalid_argument("additive_attention: " + what + "; allowed: " + allowed);
}

kernel::Additive lower_additive(const Spec& spec, const Operands& operands, View<const float> vector,
                                const BoundMask& mask) {
  const kernel::Extents& q = operands.q.size;
  kernel::Additive problem;
  problem.forward = lower(spec, operands, mask);
  problem.forward.scale = 1.0F;
  problem.vector = broadcast(vector, {q[0], q[1], 1, q[3]});
  return problem;
}

void check_f32(const char* name, const ConstAnyView& view) {
  if (view.dtype != kernel::DType::f32) {
    fail(std::string(name) + " is " + kernel::name(view.dtype), "f32 in the backward");
  }
}

template <class T>
void check_gradient(const char* name, const View<T>& view, const kernel::Extents& size) {
  if (view.data != nullptr && view.size != size) {
    fail(std::string("the gradient of ") + name + " has other sizes", "those of " + std::string(name));
  }
}

}  // namespace

void check_additive(const Spec& spec, const Operands& operands, const View<const float>& vector) {
  if (spec.scale || spec.softcap != 0.0F || spec.dropout != 0.0) {
    fail("the spec is " + spec.to_string(), "a mask alone");
  }
  if (operands.bias || operands.slopes || operands.sinks) {
    fail("bias, slopes or sinks are given", "none of them");
  }
  const kernel::Extents& q = operands.q.size;
  const kernel::Extents wanted{q[0], q[1], 1, q[3]};
  for (int axis = 0; axis < 4; ++axis) {
    if (vector.size[axis] != wanted[axis] && (axis == 3 || vector.size[axis] != 1)) {
      fail("vector has size " + std::to_string(vector.size[axis]) + " along axis " + std::to_string(axis),
           (axis == 3 ? "" : "1 or ") + std::to_string(wanted[axis]));
    }
  }
  if (vector.data == nullptr && q[3] > 0) fail("vector has no data", "a pointer");
}

void additive_attention(const Spec& spec, const Operands& operands, View<const float> vector,
                        kernel::Parallel& parallel) {
  check(spec, operands);
  check_additive(spec, operands, vector);
  const kernel::Extents& q = operands.q.size;
  if (q[0] * q[1] * q[2] == 0) return;
  const BoundMask mask = bind_mask(spec, operands);
  const kernel::Additive problem = lower_additive(spec, operands, vector, mask);
  const Scratch scratch(kernel::additive_workspace(problem, parallel.workers()));
  kernel::additive(problem, scratch.bytes(), parallel);
}

void additive_backward(const Spec& spec, const Operands& operands, View<const float> vector,
                       const Arriving& arriving, const AdditiveGradients& gradients,
                       kernel::Parallel& parallel) {
  check_backward(spec, operands, arriving, {gradients.q, gradients.k, gradients.v, {}, {}, {}});
  check_additive(spec, operands, vector);
  check_f32("out", operands.out);
  check_f32("the gradient of out", arriving.out);
  check_gradient("the vector", gradients.vector, vector.size);
  check_data(operands);
  const kernel::Extents& q = operands.q.size;
  const BoundMask mask = bind_mask(spec, operands);
  kernel::AdditiveBackward problem;
  problem.additive = lower_additive(spec, operands, vector, mask);
  problem.grad_out = arriving.out.as<const float>();
  problem.grad_lse = arriving.lse;
  problem.grad_q = gradients.q;
  problem.grad_k = gradients.k;
  problem.grad_v = gradients.v;
  if (gradients.vector) problem.grad_vector = broadcast(gradients.vector, {q[0], q[1], 1, q[3]});
  const Scratch scratch(kernel::additive_backward_workspace(problem, parallel.workers()));
  kernel::additive_backward(problem, scratch.bytes(), parallel);
}

}  // namespace regard::attention

#pragma once

namespace regard::kernel {

// A small problem with a known answer, and its gradients, through every kernel and type on the target in use;
// false: it computes wrong numbers. A few milliseconds. What runs only on machines that no test has seen is
// not trusted without.
bool self_check();

// Parts of it: additive attention, linear attention, and norms, softmax, dropout, Adam and the like. Products
// with laid-out matrices check themselves (packed_product.h, quantized.h). Every function that is dispatched
// is in one of them (scripts/check_rooms.py looks).
bool additive_self_check();
bool linear_self_check();
bool rows_self_check();

}  // namespace regard::kernel

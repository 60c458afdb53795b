#pragma once

namespace regard::kernel {

// A small problem with a known answer, and its gradients, through every kernel and type on the target in use;
// false: it computes wrong numbers. A few milliseconds. What runs only on machines that no test has seen is
// not trusted without.
bool self_check();

// The same of linear attention.
bool linear_self_check();

}  // namespace regard::kernel

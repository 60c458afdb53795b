#pragma once

namespace regard::kernel {

// A small problem with a known answer through every kernel and type on the target in use; false: it computes
// wrong numbers. Some 100 us. What runs only on machines that no test has seen is not trusted without.
bool self_check();

}  // namespace regard::kernel

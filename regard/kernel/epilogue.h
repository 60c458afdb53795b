#pragma once

#include <cstdint>

namespace regard::kernel {

// What a product does with each sum, bias included, before it is written. gelu: x Phi(x), the exact form.
enum class Epilogue : uint8_t { none, gelu };

}  // namespace regard::kernel

#pragma once

#include <CLI/CLI.hpp>

namespace regard::cli {

// Registers `bench train` below `bench`.
void add_bench_train(CLI::App& bench);

}  // namespace regard::cli

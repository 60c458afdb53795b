#pragma once

#include <CLI/CLI.hpp>

namespace regard::cli {

// Registers `bench linear` below `bench`.
void add_bench_linear(CLI::App& bench);

}  // namespace regard::cli

#pragma once

#include <CLI/CLI.hpp>

namespace regard::cli {

// Registers `bench translate` below `bench`.
void add_bench_translate(CLI::App& bench);

}  // namespace regard::cli

#pragma once

#include <CLI/CLI.hpp>

#include "regard/kernel/pages.h"

namespace regard::cli {

// --kv-dtype: what is kept of the keys and values of the tokens that were read.
void add_kv_dtype(CLI::App& verb, kernel::CacheType& type);

}  // namespace regard::cli

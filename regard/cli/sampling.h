#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "regard/model/generate.h"

namespace regard::cli {

// --temperature, --top-k, --top-p, --min-p, --repetition-penalty and --seed. zero: what a temperature of 0
// means to the verb.
void add_sampling(CLI::App& verb, model::Sampling& sampling, const std::string& zero);

}  // namespace regard::cli

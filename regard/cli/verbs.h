#pragma once

#include <CLI/CLI.hpp>

// One file per verb; each registers its options and a callback that does the work and throws on failure
// (std::invalid_argument: used wrongly, exit 2; anything else: failed, exit 1).
namespace regard::cli {

void add_look(CLI::App& app);
void add_run(CLI::App& app);
void add_translate(CLI::App& app);
void add_embed(CLI::App& app);
void add_tokens(CLI::App& app);
void add_score(CLI::App& app);
void add_models(CLI::App& app);
void add_train(CLI::App& app);
void add_eval(CLI::App& app);
void add_data(CLI::App& app);
void add_explain(CLI::App& app);
void add_bench(CLI::App& app);

}  // namespace regard::cli

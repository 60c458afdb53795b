#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "regard/train/recipe.h"

namespace regard::bench {

// The Transformer translator of a recipe, and the same model of libtorch's nn::Transformer: one loop trains
// both, from the same numbers, on the same batches in the same order; the same decoder writes their test.
struct TranslateBench {
  train::Recipe recipe;
  // Of the trainings, "regard" and "libtorch" in it; as every training they go on where they were stopped.
  std::filesystem::path folder;
  std::filesystem::path test;  // TSV as the recipe's; empty: its validation texts
  int64_t beam = 1;            // of the test; 1: greedy
  // Steps that one makes before it is the other's turn, so that what else the machine does slows both.
  int64_t turn = 100;
  std::function<void(int64_t done, int64_t all)> trained;     // steps of both
  std::function<void(int64_t done, int64_t all)> translated;  // texts of one; may throw
  std::function<bool()> stop;  // asked after each step: save, and return no row
};

// A row for each, ours first: model, parameters, threads, steps, tokens (of targets), seconds (of steps
// alone), tokens_per_second, valid_loss (of the model that is kept: the best by the recipe), test_texts,
// beam, test_bleu, test_chrf, test_accuracy, test_loss (nats per token). Throws std::invalid_argument for a
// recipe of another model, and as train::train() does.
std::vector<nlohmann::ordered_json> translate_bench(const TranslateBench& options);

}  // namespace regard::bench

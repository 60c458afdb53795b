// Trainings of every kind of model that take a moment, on texts of a few kilobytes.
#pragma once

#include <string>
#include <vector>

#include "regard/train/recipe.h"
#include "tests/io/files.h"

namespace regard::train {

enum class Small : uint8_t { language_model, transformer, rnn };

inline const char* name_of(Small kind) {
  return kind == Small::language_model ? "language_model"
         : kind == Small::transformer  ? "transformer"
                                       : "rnn";
}

// Its texts and its recipe in `folder`; the same recipe is `NAME.toml` there.
inline Recipe small_recipe(const io::TemporaryFolder& folder, Small kind,
                           const std::vector<std::string>& settings = {}) {
  std::string text, pairs;
  for (int i = 0; i < 60; ++i) {
    const std::string number = std::to_string(i * i % 17);
    const char* more = i % 3 == 0 ? " and the lazy dog sleeps" : "";
    text += "the quick brown fox " + number + " jumps" + more + "; \n\n";
    pairs += "fox " + number + more + "\tle renard " + number + (i % 5 == 0 ? " dort\n" : "\n");
  }
  io::write_all(folder / "text.txt", text);
  io::write_all(folder / "pairs.tsv", pairs);
  std::string recipe = R"(
[train]
steps = 6
warmup = 2
accumulate = 2
rate = 1e-3
validate_every = 3
save_every = 1
keep = 1
)";
  if (kind == Small::language_model) {
    recipe += R"(length = 24
batch = 2
[data]
train = "text.txt"
[model]
layers = 2
width = 16
heads = 2
)";
  } else {
    recipe = "kind = \"translator\"\n" + recipe + R"(batch_tokens = 120
score_every = 6
[data]
train = "pairs.tsv"
valid = "pairs.tsv"
vocabulary = {size = 60}
max_length = 40
[model]
)";
    recipe += kind == Small::transformer
                  ? "layers = 2\nwidth = 16\nheads = 2\nfeed_forward = 32\n"
                  : "architecture = \"rnn\"\nattention = \"additive\"\nembedding = 12\nwidth = 16\n";
  }
  const auto path = folder / (std::string(name_of(kind)) + ".toml");
  io::write_all(path, recipe);
  return read_recipe(path, settings);
}

}  // namespace regard::train

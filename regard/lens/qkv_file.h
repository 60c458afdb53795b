// Queries and keys that any program saved, looked at like those of a model.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "regard/lens/recording.h"

namespace regard::lens {

// An NPZ file with
//   q     [heads, tokens, Dk] or [layers, heads, tokens, Dk], positions (RoPE) already applied
//   k     the same with the number of key heads, which divides that of the query heads
//   v     optional, [..., tokens, Dv]
//   causal  optional flag; mask  optional, [tokens, tokens], [heads, tokens, tokens] or [layers, 1 or heads,
//           tokens, tokens], boolean or integer, nonzero = may attend
//   scale   optional, default 1 / sqrt(Dk)
//   window  optional, keys that a row sees to its left, itself included
//   layers  optional, their numbers
// and `tokens`, a text file with one token a line; without it tokens are called by their positions. The
// log-sum-exp is computed here. Throws io::Error naming the array and what is wrong with it.
Recording read_qkv(const std::filesystem::path& npz, const std::optional<std::filesystem::path>& tokens,
                   Precision precision = Precision::f32);

// Tokens and words from pieces: "##", "Ġ" and "▁" join or part words; [CLS], <s>, <|...|> and the like are
// special.
void describe_pieces(const std::vector<std::string>& pieces, Recording& recording);

// Writes q, k[, v], lse, causal, scale, layers, token ids and per head entropy and column sums; where they
// take no more than 64 MiB also all weights, [layers, heads, tokens, tokens]. read_qkv() reads it back.
// Throws std::invalid_argument where layers differ in shape.
void write_qkv(const std::filesystem::path& npz, const Recording& recording);

}  // namespace regard::lens

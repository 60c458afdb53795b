// From a recording to the report that is printed and drawn.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "regard/lens/recording.h"
#include "regard/lens/report.h"

namespace regard::lens {

struct ReportOptions {
  bool words = true;          // units are words where the recording knows them
  bool hide_special = false;  // leave special tokens out of the focus and rescale its rows
  // The word to look from, or the position of a token, or "word#2" for its second occurrence. Absent: chosen
  // by the rule that Focus::reason states.
  std::optional<std::string> token;
  std::optional<std::string> on;  // rank heads by their weight on this word, written like `token`
  int64_t best_heads = 8;         // heads whose rows are given in full
  int64_t blocks = 64;            // at most so many blocks a side in the block maps
  // Heads to carry exactly, beside those the focus names, within so many bytes.
  std::vector<std::pair<int64_t, int64_t>> carry;
  int64_t carry_bytes = int64_t{12} << 20;
  std::function<void(int64_t, int64_t)> progress;  // (heads done, heads in all)
};

// Throws std::invalid_argument for a word or position that the text does not have.
Report make_report(const Recording& recording, const ReportOptions& options = {});

// The unit that `wanted` names: an exact word, else a word in another case, else the position of a token.
int64_t find_unit(const Recording& recording, std::span<const Unit> units, const std::string& wanted);

}  // namespace regard::lens

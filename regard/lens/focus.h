// One word, seen through all heads.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "regard/lens/make_report.h"
#include "regard/lens/recording.h"
#include "regard/lens/survey.h"

namespace regard::lens {

// The word with the largest single-head weight on another word, relative to an even spread; -1 where the text
// has no two words. `reason` becomes the sentence that says so.
int64_t choose_unit(const Recording& recording, std::span<const Unit> units,
                    std::span<const HeadSurvey> heads, std::string& reason);

// Rows, best heads, mixtures, what the word receives, rollout.
void look_from(const Recording& recording, std::span<const Unit> units, std::span<const HeadSurvey> heads,
               const ReportOptions& options, Focus& focus);

}  // namespace regard::lens

#pragma once

#include <string>

#include "regard/cli/look_options.h"
#include "regard/lens/recording.h"
#include "regard/lens/report.h"
#include "regard/model/model.h"

// From what was asked to a recording and a report, with progress on standard error.
namespace regard::cli {

// A text with its recording and what is said about it.
struct Seen {
  lens::Recording recording;
  lens::Report report;
};

// A text through the model. An empty text, or one that is longer than the model reads, is refused
// (std::invalid_argument).
Seen look_at(const model::Loaded& loaded, const Look& options, const std::string& text);

// The q, k[, v] of --qkv.
Seen look_at_file(const Look& options);

}  // namespace regard::cli

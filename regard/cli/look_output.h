#pragma once

#include "regard/cli/look_options.h"
#include "regard/cli/look_see.h"

// Where a look goes: to standard output as text or JSON, and into the files that were asked for.
namespace regard::cli {

// other: the text of --compare, or nullptr.
void show(const Look& options, const Seen& seen, const Seen* other);
void write_files(const Look& options, const Seen& seen, const Seen* other);

}  // namespace regard::cli

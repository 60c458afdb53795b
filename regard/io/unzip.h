// Chosen entries of a zip archive (a Python wheel is one), unpacked by libzip.
#pragma once

#include <filesystem>
#include <string_view>

namespace regard::io {

// Unpacks the entries of a zip whose names begin with `prefix`, less that prefix's folder, into `folder`,
// which appears whole or not at all: "a/b/" puts a/b/c/d at FOLDER/c/d, "a/b.txt" puts it at FOLDER/b.txt. An
// older folder of that name is replaced. Throws Error: no such entry, a damaged zip, an entry that leaves the
// folder.
void unzip(const std::filesystem::path& zip, std::string_view prefix, const std::filesystem::path& folder);

}  // namespace regard::io

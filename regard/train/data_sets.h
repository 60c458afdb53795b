#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "regard/io/download.h"
#include "regard/train/shuffle.h"

// The data sets that the documents and recipes speak of: where each comes from, under which licence, and how
// it is made on this machine. Nothing is fetched unasked.
namespace regard::train {

enum class Origin : uint8_t {
  made,     // generated from a seed
  package,  // of the Python package index, downloaded when asked for
  system,   // of a Debian package, which the user installs
  web,      // a file that the user downloads, prepared by our code
  as_is,    // files that the user downloads; nothing here prepares them
};
const char* name(Origin origin);

struct DataSet {
  std::string name;  // "digits"
  std::string what;
  Origin origin = Origin::made;
  std::string size;  // in words
  std::string licence;
  std::string attribution;  // whom to name, and where
  std::string address;      // where it is got from, or the command that makes it
  std::string preparation;  // what is done to it, by `regard data` or where the documents used it
};

const std::vector<DataSet>& data_sets();
// Throws std::invalid_argument naming the nearest one.
const DataSet& data_set(std::string_view name);

// Into `folder`, which is created. Returns the files written. Throws io::Error; std::invalid_argument for one
// of another origin.
std::vector<std::filesystem::path> make(const DataSet& set, const std::filesystem::path& folder,
                                        uint64_t seed = kSeed);
// package: downloads what is not in the downloads folder yet. system: from where the package puts its files,
// or from `from`, a folder with them.
std::vector<std::filesystem::path> get(const DataSet& set, const std::filesystem::path& folder,
                                       const std::filesystem::path& from,
                                       const io::OnProgress& progress = {});
// web: of the file that was downloaded (and unpacked).
std::vector<std::filesystem::path> prepare(const DataSet& set, const std::filesystem::path& from,
                                           const std::filesystem::path& folder, uint64_t seed = kSeed);

// What `get` of a package downloads.
const io::Wheel& digits_wheel();

}  // namespace regard::train

#include "regard/io/unzip.h"

#include <unistd.h>
#include <zip.h>

#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "regard/io/atomic_file.h"
#include "regard/io/error.h"

namespace regard::io {
namespace {

namespace fs = std::filesystem;

struct CloseZip {
  void operator()(zip_t* archive) const { zip_discard(archive); }
  void operator()(zip_file_t* entry) const { zip_fclose(entry); }
};
using Archive = std::unique_ptr<zip_t, CloseZip>;
using Entry = std::unique_ptr<zip_file_t, CloseZip>;

Archive open_archive(const fs::path& path) {
  int code = 0;
  Archive archive(zip_open(path.c_str(), ZIP_RDONLY, &code));
  if (archive) return archive;
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  const std::string reason = zip_error_strerror(&error);
  zip_error_fini(&error);
  fail(path.string(), "cannot be read as a zip archive: " + reason);
}

// What is left of the name without the folder of `prefix`; nothing may point out of the destination.
fs::path relative_name(const fs::path& zip, std::string_view name, std::string_view prefix) {
  const size_t slash = prefix.rfind('/');
  fs::path relative(name.substr(slash == std::string_view::npos ? 0 : slash + 1));
  for (const fs::path& part : relative) {
    if (part == ".." || relative.is_absolute())
      fail(zip.string(), "holds the entry " + quoted(name) + ", which leaves its folder");
  }
  return relative;
}

void unpack_entry(const fs::path& zip, zip_t* archive, zip_uint64_t index, const fs::path& path) {
  const Entry entry(zip_fopen_index(archive, index, 0));
  if (!entry) fail(zip.string(), std::string("cannot be unpacked: ") + zip_strerror(archive));
  AtomicFile out(path);
  std::vector<std::byte> block(1 << 20);
  for (;;) {
    // The last read compares the checksum.
    const zip_int64_t count = zip_fread(entry.get(), block.data(), block.size());
    if (count < 0) fail(zip.string(), std::string("is damaged: ") + zip_file_strerror(entry.get()));
    if (count == 0) break;
    out.write(std::span<const std::byte>(block.data(), static_cast<size_t>(count)));
  }
  out.commit();
}

// A folder beside its final name, removed unless it was renamed.
struct TemporaryFolder {
  fs::path path;
  explicit TemporaryFolder(const fs::path& final_path) : path(final_path.parent_path() / ".") {
    path += final_path.filename();
    path += ".";
    path += std::to_string(::getpid());
    std::error_code error;
    fs::remove_all(path, error);
    fs::create_directories(path, error);
    if (error) fail(path.string(), "cannot be created: " + error.message());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
};

}  // namespace

void unzip(const fs::path& zip, std::string_view prefix, const fs::path& folder) {
  const Archive archive = open_archive(zip);
  const TemporaryFolder temporary(folder);
  bool found = false;
  const zip_int64_t entries = zip_get_num_entries(archive.get(), 0);
  for (zip_int64_t i = 0; i < entries; ++i) {
    const auto index = static_cast<zip_uint64_t>(i);
    const char* raw_name = zip_get_name(archive.get(), index, 0);
    const std::string_view name = raw_name == nullptr ? "" : raw_name;
    if (!name.starts_with(prefix) || name.ends_with('/')) continue;
    const fs::path path = temporary.path / relative_name(zip, name, prefix);
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (error) fail(path.parent_path().string(), "cannot be created: " + error.message());
    unpack_entry(zip, archive.get(), index, path);
    found = true;
  }
  if (!found) fail(zip.string(), "holds no entry that begins with " + quoted(prefix));

  std::error_code error;
  fs::remove_all(folder, error);
  fs::rename(temporary.path, folder, error);
  if (error) fail(folder.string(), "cannot be put in its place: " + error.message());
}

}  // namespace regard::io

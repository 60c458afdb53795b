#include "regard/io/zip_reader.h"

#include <zip.h>

#include <memory>
#include <string_view>
#include <utility>

#include "regard/io/error.h"

namespace regard::io {
namespace {

constexpr uint64_t kMaxRatio = 1032;  // deflate cannot pack better

struct Close {
  void operator()(zip_t* archive) const { zip_discard(archive); }
  void operator()(zip_source_t* bytes) const { zip_source_free(bytes); }
  void operator()(zip_file_t* member) const { zip_fclose(member); }
};

std::unique_ptr<zip_t, Close> open_archive(std::span<const std::byte> file, const std::string& source) {
  zip_error_t error;
  zip_error_init(&error);
  std::unique_ptr<zip_source_t, Close> bytes(zip_source_buffer_create(file.data(), file.size(), 0, &error));
  std::unique_ptr<zip_t, Close> archive;
  if (bytes) archive.reset(zip_open_from_source(bytes.get(), ZIP_RDONLY, &error));
  const std::string reason = zip_error_strerror(&error);
  zip_error_fini(&error);
  if (!archive) fail(source, "cannot be read as a zip archive: " + reason);
  // The archive owns its source from here on.
  static_cast<void>(bytes.release());
  return archive;
}

zip_stat_t describe_member(zip_t* archive, zip_uint64_t index, const std::string& source) {
  zip_stat_t facts;
  constexpr zip_uint64_t needed =
      ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
  if (zip_stat_index(archive, index, ZIP_FL_ENC_RAW, &facts) != 0 || (facts.valid & needed) != needed) {
    fail(source, "has a damaged zip directory at entry " + std::to_string(index));
  }
  const std::string member = "member " + io::quoted(facts.name);
  if (facts.encryption_method != ZIP_EM_NONE) fail(source, member + " is encrypted");
  if (facts.comp_method != ZIP_CM_STORE && facts.comp_method != ZIP_CM_DEFLATE) {
    fail(source, member + " is compressed by method " + std::to_string(facts.comp_method) +
                     "; stored and deflated are read");
  }
  if (facts.size / kMaxRatio > facts.comp_size) {
    fail(source,
         member + " claims " + std::to_string(facts.size) + " bytes from " + std::to_string(facts.comp_size));
  }
  return facts;
}

std::vector<std::byte> inflate(zip_t* archive, zip_uint64_t index, const zip_stat_t& facts,
                               const std::string& source) {
  const std::string member = "member " + io::quoted(facts.name);
  const std::unique_ptr<zip_file_t, Close> opened(zip_fopen_index(archive, index, 0));
  if (!opened) fail(source, member + " cannot be unpacked: " + zip_strerror(archive));
  // One byte more than announced: it shows contents that are too long, and reading to the end compares the
  // CRC.
  std::vector<std::byte> contents(facts.size + 1);
  uint64_t filled = 0;
  while (filled < contents.size()) {
    const zip_int64_t count = zip_fread(opened.get(), contents.data() + filled, contents.size() - filled);
    if (count < 0) fail(source, member + " is damaged: " + zip_file_strerror(opened.get()));
    if (count == 0) break;
    filled += static_cast<uint64_t>(count);
  }
  if (filled != facts.size) {
    fail(source, member + " is damaged: it does not inflate to its " + std::to_string(facts.size) + " bytes");
  }
  contents.pop_back();
  return contents;
}

}  // namespace

std::vector<ZipMember> read_zip(std::span<const std::byte> file, const std::string& source, uint64_t limit) {
  const auto archive = open_archive(file, source);
  const zip_int64_t count = zip_get_num_entries(archive.get(), 0);
  uint64_t inflated = 0;
  uint64_t packed = 0;
  std::vector<zip_stat_t> facts;
  for (zip_int64_t i = 0; i < count; ++i) {
    facts.push_back(describe_member(archive.get(), static_cast<zip_uint64_t>(i), source));
    const bool too_large = __builtin_add_overflow(inflated, facts.back().size, &inflated) || inflated > limit;
    if (too_large)
      fail(source,
           "the contents are larger than " + std::to_string(limit) + " bytes, the limit set for them");
    // Members that share their bytes would inflate a small file to any size.
    if (__builtin_add_overflow(packed, facts.back().comp_size, &packed) || packed > file.size()) {
      fail(source, "members of the zip archive overlap or lie outside it");
    }
  }
  std::vector<ZipMember> members;
  for (size_t i = 0; i < facts.size(); ++i) {
    members.push_back({facts[i].name, inflate(archive.get(), i, facts[i], source)});
  }
  return members;
}

}  // namespace regard::io

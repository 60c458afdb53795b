#include "regard/io/npz.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>
#include <utility>

#include "regard/io/atomic_file.h"
#include "regard/io/error.h"
#include "regard/io/npy.h"
#include "regard/io/zip_reader.h"
#include "regard/io/zip_writer.h"

namespace regard::io {
namespace {

constexpr std::string_view kEnding = ".npy";

}  // namespace

void write_npy(const std::filesystem::path& path, const Tensor& array) {
  const std::string header = npy_header(array);
  AtomicFile file(path);
  file.write(header);
  file.write(array.bytes);
  file.commit();
}

void write_npz(const std::filesystem::path& path, std::span<const Tensor> arrays, Compression compression) {
  std::vector<std::string> headers;
  std::set<std::string_view> names;
  for (const Tensor& array : arrays) {
    const bool printable =
        std::none_of(array.name.begin(), array.name.end(), [](char c) { return c >= 0 && c < 0x20; });
    if (array.name.empty() || array.name.size() > 1024 || !printable || !names.insert(array.name).second) {
      throw std::invalid_argument("write_npz: array name " + io::quoted(array.name) +
                                  " is empty, repeated, too long or holds a control character");
    }
    headers.push_back(npy_header(array));
  }
  AtomicFile file(path);
  ZipWriter zip(file, path.string());
  for (size_t i = 0; i < arrays.size(); ++i) {
    zip.add(arrays[i].name + std::string(kEnding), std::as_bytes(std::span(headers[i])), arrays[i].bytes,
            compression == Compression::deflate);
  }
  zip.finish();
  file.commit();
}

Npz Npz::open(const std::filesystem::path& path, uint64_t limit) {
  auto file = std::make_unique<MappedFile>(MappedFile::open(path));
  Npz result = parse(file->bytes(), file->path(), limit);
  result.file_ = std::move(file);
  return result;
}

Npz Npz::parse(std::span<const std::byte> bytes, std::string source, uint64_t limit) {
  Npz result;
  result.source_ = std::move(source);
  if (bytes.size() >= 6 && std::memcmp(bytes.data(), "\x93NUMPY", 6) == 0) {
    result.add("", bytes);
    return result;
  }
  if (bytes.size() < 2 || std::memcmp(bytes.data(), "PK", 2) != 0) {
    fail(result.source_, "neither an NPZ nor an NPY file");
  }
  for (ZipMember& member : read_zip(bytes, result.source_, limit)) {
    if (!member.name.ends_with(kEnding)) {
      result.skipped_.emplace(member.name, "it is no array (its name does not end in .npy)");
      continue;
    }
    const std::string name = member.name.substr(0, member.name.size() - kEnding.size());
    if (result.find(name) != nullptr || result.skipped_.contains(name)) {
      fail(result.source_, "array " + io::quoted(name) + " is given twice");
    }
    result.owned_.push_back(std::move(member.contents));
    result.add(name, result.owned_.back());
  }
  return result;
}

void Npz::add(std::string name, std::span<const std::byte> npy) {
  NpyArray parsed = parse_npy(npy, name.empty() ? source_ : source_ + ", array " + io::quoted(name));
  if (!parsed.unsupported.empty()) {
    skipped_.emplace(std::move(name), std::move(parsed.unsupported));
    return;
  }
  if (parsed.fortran_order && parsed.array.shape.size() > 1) {
    owned_.push_back(to_c_order(parsed.array));
    parsed.array.bytes = owned_.back();
  }
  parsed.array.name = std::move(name);
  tensors_.push_back(std::move(parsed.array));
}

const Tensor* Npz::find(std::string_view name) const {
  const auto found =
      std::find_if(tensors_.begin(), tensors_.end(), [&](const Tensor& t) { return t.name == name; });
  return found == tensors_.end() ? nullptr : &*found;
}

const Tensor& Npz::require(std::string_view name) const {
  if (const Tensor* tensor = find(name)) return *tensor;
  if (const auto found = skipped_.find(name); found != skipped_.end()) {
    fail(source_, "array " + io::quoted(name) + " cannot be used: " + found->second);
  }
  std::string names;
  for (const Tensor& tensor : tensors_) names += (names.empty() ? "" : ", ") + io::quoted(tensor.name);
  fail(source_, "array " + io::quoted(name) + " is missing; there is " + (names.empty() ? "none" : names));
}

}  // namespace regard::io

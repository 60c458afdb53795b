#include "regard/io/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <utility>

#include "regard/io/atomic_file.h"
#include "regard/io/error.h"
#include "regard/io/json_events.h"

namespace regard::io {
namespace {

// The limits of the format's own reader (header) and of ours (names: a file's name is longer nowhere in use).
constexpr uint64_t kMaxHeader = 100'000'000;
constexpr size_t kMaxName = 4096;
constexpr size_t kMaxDimensions = 32;

struct DtypeName {
  std::string_view name;
  Type type;
};
constexpr std::array<DtypeName, 10> kDtypes = {{{"F32", Type::f32},
                                                {"F64", Type::f64},
                                                {"F16", Type::f16},
                                                {"BF16", Type::bf16},
                                                {"I8", Type::i8},
                                                {"U8", Type::u8},
                                                {"I16", Type::i16},
                                                {"I32", Type::i32},
                                                {"I64", Type::i64},
                                                {"BOOL", Type::boolean}}};

std::string known_dtypes() {
  std::string names;
  for (const auto& dtype : kDtypes) names += (names.empty() ? "" : ", ") + std::string(dtype.name);
  return names;
}

// Where a tensor lies in the data.
struct Range {
  uint64_t begin = 0;
  uint64_t end = 0;
};

// {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {"key": "value",
// ...}}
class HeaderReader final : public JsonEvents {
 public:
  using JsonEvents::JsonEvents;
  std::vector<Tensor> tensors;  // without their bytes
  std::vector<Range> ranges;    // one a tensor
  std::map<std::string, std::string> metadata;
  std::vector<std::string> notes;

 private:
  enum class Field { none, dtype, shape, offsets, unknown };

  void on_null() override { misplaced("null", depth()); }
  void on_bool(bool) override { misplaced("a truth value", depth()); }
  void on_integer(int64_t) override { number(std::nullopt); }
  void on_unsigned(uint64_t number_value) override { number(number_value); }
  void on_float(double) override { number(std::nullopt); }

  void on_string(std::string& text) override {
    if (in_metadata_ && depth() == 2) {
      if (!metadata.try_emplace(key_, text).second)
        refuse("metadata key " + io::quoted(key_) + " is given twice");
    } else if (depth() == 2 && field_ == Field::dtype) {
      const auto dtype =
          std::find_if(kDtypes.begin(), kDtypes.end(), [&](auto& d) { return d.name == text; });
      if (dtype == kDtypes.end()) {
        refuse(tensor() + " has dtype " + io::quoted(text) + "; Regard reads " + known_dtypes());
      }
      tensors.back().type = dtype->type;
    } else {
      misplaced("a string", depth());
    }
  }

  void on_key(std::string& name) override {
    if (depth() == 1) {
      in_metadata_ = name == "__metadata__";
      if (in_metadata_ && std::exchange(seen_metadata_, true)) refuse("__metadata__ is given twice");
      if (!in_metadata_) start_tensor(name);
    } else if (in_metadata_) {
      key_ = name;
    } else if (depth() == 2) {
      field_ = name == "dtype"          ? Field::dtype
               : name == "shape"        ? Field::shape
               : name == "data_offsets" ? Field::offsets
                                        : Field::unknown;
      if (field_ == Field::unknown) {
        if (notes.size() < 20)
          notes.push_back(tensor() + " has the unknown field " + io::quoted(name) + ", ignored");
      } else if (std::exchange(seen_[static_cast<size_t>(field_)], true)) {
        refuse(tensor() + " gives " + name + " twice");
      }
    }
  }

  void on_object_begin() override {
    if (depth() > 2) misplaced("an object", depth() - 1);
  }

  void on_object_end() override {
    if (depth() == 2 && !in_metadata_) {
      for (const auto& [field, name] : {std::pair{Field::dtype, "dtype"}, std::pair{Field::shape, "shape"},
                                        std::pair{Field::offsets, "data_offsets"}}) {
        if (!seen_[static_cast<size_t>(field)]) refuse(tensor() + " has no " + std::string(name));
      }
      if (offsets_ != 2)
        refuse(tensor() + " has " + std::to_string(offsets_) + " data_offsets; 2 are needed");
    }
  }

  void on_array_begin() override {
    if (depth() == 1) refuse("the header is an array; it must be an object");
    if (depth() == 3 && !in_metadata_ && (field_ == Field::shape || field_ == Field::offsets)) return;
    misplaced("an array", depth() - 1);
  }
  void on_array_end() override {}

  void start_tensor(std::string& name) {
    if (name.size() > kMaxName) {
      refuse("a tensor name has " + std::to_string(name.size()) + " bytes; at most " +
             std::to_string(kMaxName) + " are allowed");
    }
    if (name.find('\0') != std::string::npos) refuse("tensor name " + io::quoted(name) + " holds a NUL");
    tensors.emplace_back().name = std::move(name);
    ranges.emplace_back();
    field_ = Field::none;
    seen_.fill(false);
    offsets_ = 0;
  }

  void number(std::optional<uint64_t> whole) {
    if (depth() != 3 || in_metadata_ || (field_ != Field::shape && field_ != Field::offsets))
      return misplaced("a number", depth());
    if (field_ == Field::shape) {
      if (!whole || *whole > static_cast<uint64_t>(INT64_MAX)) {
        refuse(tensor() + " has a size that is not a whole number from 0 to 2^63-1");
      }
      if (tensors.back().shape.size() == kMaxDimensions) {
        refuse(tensor() + " has more than " + std::to_string(kMaxDimensions) + " dimensions");
      }
      tensors.back().shape.push_back(static_cast<int64_t>(*whole));
    } else {
      if (!whole) refuse(tensor() + " has a data offset that is not a whole number from 0 up");
      if (offsets_ == 0) ranges.back().begin = *whole;
      if (offsets_ == 1) ranges.back().end = *whole;
      ++offsets_;
    }
  }

  // A value that does not belong where it stands, inside `level` containers; within unknown fields anything
  // goes.
  void misplaced(std::string_view kind, int level) {
    if (level == 0) refuse("the header is " + std::string(kind) + "; it must be an object");
    if (in_metadata_) {
      refuse(level >= 2 ? "metadata " + io::quoted(key_) + " must be a string"
                        : "__metadata__ must be an object");
    }
    if (field_ == Field::unknown) return;
    if (field_ == Field::none) refuse(tensor() + " must be an object");
    static constexpr std::string_view names[] = {"", "dtype", "shape", "data_offsets"};
    refuse(tensor() + " has " + std::string(kind) + " in " + std::string(names[static_cast<size_t>(field_)]));
  }

  std::string tensor() const { return "tensor " + io::quoted(tensors.back().name); }

  bool in_metadata_ = false;
  bool seen_metadata_ = false;
  std::string key_;
  Field field_ = Field::none;
  std::array<bool, 5> seen_ = {};
  int offsets_ = 0;
};

// Every tensor must be as long as its type and shape say, and together they must tile the data without holes.
void check_layout(const std::vector<Tensor>& tensors, const std::vector<Range>& ranges, uint64_t data_size,
                  const std::string& source) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto [begin, end] = ranges[i];
    int64_t bytes = 0;
    if (count_bytes(tensors[i].type, tensors[i].shape, bytes) && begin <= end && end <= data_size &&
        end - begin == static_cast<uint64_t>(bytes)) {
      continue;
    }
    const std::string tensor = "tensor " + io::quoted(tensors[i].name);
    if (!count_bytes(tensors[i].type, tensors[i].shape, bytes))
      fail(source, tensor + " has too many elements");
    if (begin > end) {
      fail(source,
           tensor + " ends at " + std::to_string(end) + ", before it begins at " + std::to_string(begin));
    }
    if (end > data_size) {
      fail(source, tensor + " ends at byte " + std::to_string(end) +
                       " of the data, but the file holds only " + std::to_string(data_size));
    }
    fail(source, tensor + " has " + std::to_string(end - begin) + " bytes; its dtype and shape need " +
                     std::to_string(bytes));
  }
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(ranges[a].begin, ranges[a].end) < std::pair(ranges[b].begin, ranges[b].end);
  });
  uint64_t next = 0;
  for (const size_t i : order) {
    const char* wrong = ranges[i].begin < next ? " overlaps the one before it" : " leaves a hole before it";
    if (ranges[i].begin != next) fail(source, "tensor " + io::quoted(tensors[i].name) + wrong);
    next = ranges[i].end;
  }
  if (next != data_size) {
    fail(source, std::to_string(data_size - next) + " bytes follow the last tensor; none may");
  }
}

}  // namespace

Safetensors Safetensors::open(const std::filesystem::path& path) {
  auto file = std::make_unique<MappedFile>(MappedFile::open(path));
  Safetensors result = parse(file->bytes(), file->path());
  result.file_ = std::move(file);
  return result;
}

Safetensors Safetensors::parse(std::span<const std::byte> bytes, std::string source) {
  if (bytes.size() < 8) {
    fail(source, "not a safetensors file: it has " + std::to_string(bytes.size()) + " bytes, fewer than 8");
  }
  uint64_t header_size = 0;
  std::memcpy(&header_size, bytes.data(), sizeof(header_size));
  if (header_size == 0) fail(source, "not a safetensors file: the header is empty");
  if (header_size > kMaxHeader) {
    fail(source, "not a safetensors file: a header of " + std::to_string(header_size) + " bytes; at most " +
                     std::to_string(kMaxHeader) + " are allowed");
  }
  if (header_size > bytes.size() - 8) {
    fail(source, "the header should have " + std::to_string(header_size) + " bytes, but only " +
                     std::to_string(bytes.size() - 8) + " follow; the file is cut short");
  }
  const std::span<const std::byte> data = bytes.subspan(8 + header_size);
  HeaderReader reader({reinterpret_cast<const char*>(bytes.data()) + 8, header_size}, source);
  reader.run();

  Safetensors result;
  result.source_ = std::move(source);
  result.metadata_ = std::move(reader.metadata);
  result.notes_ = std::move(reader.notes);
  result.tensors_ = std::move(reader.tensors);
  // Names first: the same tensor twice would otherwise be reported as an overlap.
  result.by_name_.reserve(result.tensors_.size());
  for (size_t i = 0; i < result.tensors_.size(); ++i) {
    if (!result.by_name_.emplace(result.tensors_[i].name, i).second) {
      fail(result.source_, "duplicate tensor " + io::quoted(result.tensors_[i].name));
    }
  }
  check_layout(result.tensors_, reader.ranges, data.size(), result.source_);
  for (size_t i = 0; i < result.tensors_.size(); ++i) {
    const auto [begin, end] = reader.ranges[i];
    result.tensors_[i].bytes = data.subspan(begin, end - begin);
  }
  return result;
}

const Tensor* Safetensors::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

const Tensor& Safetensors::require(std::string_view name) const {
  const Tensor* tensor = find(name);
  if (tensor == nullptr) fail(source_, "tensor " + io::quoted(name) + " is missing");
  return *tensor;
}

void write_safetensors(const std::filesystem::path& path, std::span<const Tensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::string header = "{";
  if (!metadata.empty()) header += "\"__metadata__\":" + nlohmann::json(metadata).dump();
  std::unordered_map<std::string_view, size_t> names;
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors) {
    const auto dtype =
        std::find_if(kDtypes.begin(), kDtypes.end(), [&](auto& d) { return d.type == tensor.type; });
    if (dtype == kDtypes.end()) {
      throw std::invalid_argument("write_safetensors: tensor " + io::quoted(tensor.name) + " has type " +
                                  std::string(type_name(tensor.type)) + ", which the format cannot hold");
    }
    int64_t bytes = 0;
    if (!count_bytes(tensor.type, tensor.shape, bytes) ||
        static_cast<uint64_t>(bytes) != tensor.bytes.size()) {
      throw std::invalid_argument("write_safetensors: tensor " + io::quoted(tensor.name) + " has " +
                                  std::to_string(tensor.bytes.size()) +
                                  " bytes, which do not fit its shape " + tensor.shape_text());
    }
    if (tensor.name == "__metadata__" || tensor.name.size() > kMaxName ||
        tensor.name.find('\0') != std::string::npos || !names.emplace(tensor.name, 0).second) {
      throw std::invalid_argument("write_safetensors: tensor name " + io::quoted(tensor.name) +
                                  " is repeated, reserved, too long or holds a NUL");
    }
    if (header.size() > 1) header += ',';
    header += nlohmann::json(tensor.name).dump() + ":{\"dtype\":\"" + std::string(dtype->name) +
              "\",\"shape\":" + nlohmann::json(tensor.shape).dump() + ",\"data_offsets\":[" +
              std::to_string(offset) + "," + std::to_string(offset + tensor.bytes.size()) + "]}";
    offset += tensor.bytes.size();
  }
  header += '}';
  header.append((64 - (8 + header.size()) % 64) % 64, ' ');
  if (header.size() > kMaxHeader) {
    throw std::invalid_argument("write_safetensors: " + std::to_string(tensors.size()) +
                                " tensors need a header larger than the format allows");
  }
  const uint64_t header_size = header.size();
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(&header_size, 1)));
  file.write(header);
  for (const Tensor& tensor : tensors) file.write(tensor.bytes);
  file.commit();
}

}  // namespace regard::io

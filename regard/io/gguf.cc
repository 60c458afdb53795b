#include "regard/io/gguf.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "regard/io/byte_reader.h"
#include "regard/io/error.h"

namespace regard::io {
namespace {

constexpr uint64_t kMaxKey = 65535;  // the format's limit
constexpr uint64_t kMaxName = 1024;
constexpr uint32_t kMaxDimensions = 4;

struct ValueFacts {
  std::string_view name;
  uint64_t bytes;  // 0: string or array
};
constexpr std::array<ValueFacts, 13> kValues = {{{"UINT8", 1},
                                                 {"INT8", 1},
                                                 {"UINT16", 2},
                                                 {"INT16", 2},
                                                 {"UINT32", 4},
                                                 {"INT32", 4},
                                                 {"FLOAT32", 4},
                                                 {"BOOL", 1},
                                                 {"STRING", 0},
                                                 {"ARRAY", 0},
                                                 {"UINT64", 8},
                                                 {"INT64", 8},
                                                 {"FLOAT64", 8}}};

struct TypeCode {
  uint32_t code;
  std::string_view name;
  int type;  // a Type, or -1: known but not supported
};
constexpr TypeCode kTypes[] = {{0, "F32", int(Type::f32)},
                               {1, "F16", int(Type::f16)},
                               {2, "Q4_0", int(Type::q4_0)},
                               {3, "Q4_1", int(Type::q4_1)},
                               {6, "Q5_0", int(Type::q5_0)},
                               {7, "Q5_1", int(Type::q5_1)},
                               {8, "Q8_0", int(Type::q8_0)},
                               {9, "Q8_1", -1},
                               {10, "Q2_K", -1},
                               {11, "Q3_K", -1},
                               {12, "Q4_K", int(Type::q4_k)},
                               {13, "Q5_K", int(Type::q5_k)},
                               {14, "Q6_K", int(Type::q6_k)},
                               {15, "Q8_K", -1},
                               {16, "IQ2_XXS", -1},
                               {17, "IQ2_XS", -1},
                               {18, "IQ3_XXS", -1},
                               {19, "IQ1_S", -1},
                               {20, "IQ4_NL", -1},
                               {21, "IQ3_S", -1},
                               {22, "IQ2_S", -1},
                               {23, "IQ4_XS", -1},
                               {24, "I8", int(Type::i8)},
                               {25, "I16", int(Type::i16)},
                               {26, "I32", int(Type::i32)},
                               {27, "I64", int(Type::i64)},
                               {28, "F64", int(Type::f64)},
                               {29, "IQ1_M", -1},
                               {30, "BF16", int(Type::bf16)},
                               {34, "TQ1_0", -1},
                               {35, "TQ2_0", -1},
                               {39, "MXFP4", -1}};

Type type_of_code(uint32_t code, const std::string& tensor, const ByteReader& reader) {
  const auto* found =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](auto& t) { return t.code == code; });
  if (found != std::end(kTypes) && found->type >= 0) return static_cast<Type>(found->type);
  std::string known;
  for (const TypeCode& type : kTypes) {
    if (type.type >= 0) known += (known.empty() ? "" : ", ") + std::string(type.name);
  }
  const std::string name = found == std::end(kTypes) ? "" : " (" + std::string(found->name) + ")";
  reader.refuse(tensor + " has type " + std::to_string(code) + name + "; Regard reads " + known);
}

std::string_view read_text(ByteReader& reader, const std::string& what) {
  const auto length = reader.number<uint64_t>(what + "'s length");
  return reader.text(length, what);
}

GgufType read_value_type(ByteReader& reader, const std::string& what) {
  const auto code = reader.number<uint32_t>(what + "'s type");
  if (code >= kValues.size()) reader.refuse(what + " has the unknown type " + std::to_string(code));
  return static_cast<GgufType>(code);
}

GgufValue read_value(ByteReader& reader, const std::string& key) {
  const std::string what = "value of key " + io::quoted(key);
  GgufValue value{read_value_type(reader, what), false, 1, {}, {}};
  if (value.type == GgufType::array) {
    value.is_array = true;
    value.type = read_value_type(reader, what);
    if (value.type == GgufType::array)
      reader.refuse(what + " is an array of arrays, which Regard does not read");
    value.count = reader.number<uint64_t>(what + "'s count");
  }
  const uint64_t size = kValues[static_cast<size_t>(value.type)].bytes;
  // Checked before anything is reserved: an entry takes at least 8 bytes as a string, else `size`.
  if (value.count > reader.left() / (size == 0 ? 8 : size)) {
    reader.refuse(what + " should hold " + std::to_string(value.count) + " entries, but only " +
                  std::to_string(reader.left()) + " bytes are left in the file");
  }
  if (size == 0) {
    value.strings.reserve(value.count);
    for (uint64_t i = 0; i < value.count; ++i) value.strings.push_back(read_text(reader, what));
    return value;
  }
  value.bytes = reader.take(value.count * size, what);
  if (value.type == GgufType::boolean) {
    for (const std::byte b : value.bytes) {
      if (b > std::byte{1}) {
        reader.refuse(what + " holds " + std::to_string(std::to_integer<int>(b)) +
                      " for a BOOL; 0 or 1 is allowed");
      }
    }
  }
  return value;
}

std::string_view read_key(ByteReader& reader, uint64_t index) {
  const std::string what = "key number " + std::to_string(index);
  const auto length = reader.number<uint64_t>(what + "'s length");
  if (length == 0 || length > kMaxKey) {
    reader.refuse(what + " has " + std::to_string(length) + " bytes; 1 to 65535 are allowed");
  }
  const std::string_view key = reader.text(length, what);
  if (std::any_of(key.begin(), key.end(), [](char c) { return c < 0x20 || c > 0x7e; })) {
    reader.refuse(what + " " + io::quoted(key) + " is not printable ASCII");
  }
  return key;
}

struct TensorPlace {
  uint64_t offset;  // from the start of the data
  uint64_t size;
};

TensorPlace read_tensor_info(ByteReader& reader, uint64_t index, uint32_t alignment, Tensor& tensor) {
  const std::string number = "tensor number " + std::to_string(index);
  const auto length = reader.number<uint64_t>(number + "'s name length");
  if (length == 0 || length > kMaxName) {
    reader.refuse(number + " has a name of " + std::to_string(length) + " bytes; 1 to " +
                  std::to_string(kMaxName) + " are allowed");
  }
  tensor.name = reader.text(length, number + "'s name");
  const std::string what = "tensor " + io::quoted(tensor.name);
  if (std::any_of(tensor.name.begin(), tensor.name.end(),
                  [](char c) { return (c >= 0 && c < 0x20) || c == 0x7f; })) {
    reader.refuse(what + " has a control character in its name");
  }
  const auto dimensions = reader.number<uint32_t>(what + "'s number of dimensions");
  if (dimensions > kMaxDimensions) {
    reader.refuse(what + " has " + std::to_string(dimensions) + " dimensions; at most 4 are allowed");
  }
  tensor.shape.resize(dimensions);
  for (uint32_t i = 0; i < dimensions; ++i) {
    const auto size = reader.number<uint64_t>(what + "'s size");
    if (size > static_cast<uint64_t>(INT64_MAX)) {
      reader.refuse(what + " has a size of " + std::to_string(size) + "; at most 2^63-1 is allowed");
    }
    tensor.shape[dimensions - 1 - i] = static_cast<int64_t>(size);
  }
  tensor.type = type_of_code(reader.number<uint32_t>(what + "'s type"), what, reader);
  int64_t count = 0;
  int64_t bytes = 0;
  if (tensor.row_elements() % block_elements(tensor.type) != 0) {
    reader.refuse(what + " has rows of " + std::to_string(tensor.row_elements()) + " elements; " +
                  std::string(type_name(tensor.type)) + " needs a multiple of " +
                  std::to_string(block_elements(tensor.type)));
  }
  if (!count_elements(tensor.shape, count) || !count_bytes(tensor.type, tensor.shape, bytes)) {
    reader.refuse(what + " has too many elements, " + tensor.shape_text());
  }
  const auto offset = reader.number<uint64_t>(what + "'s offset");
  if (offset % alignment != 0) {
    reader.refuse(what + " lies at data offset " + std::to_string(offset) +
                  ", not a multiple of the alignment " + std::to_string(alignment));
  }
  return {offset, static_cast<uint64_t>(bytes)};
}

// Tensors must follow each other with nothing but alignment between them, the last one inside the file.
void place_tensors(std::vector<Tensor>& tensors, const std::vector<TensorPlace>& places, uint32_t alignment,
                   std::span<const std::byte> data, const std::string& source) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(places[a].offset, places[a].size) < std::pair(places[b].offset, places[b].size);
  });
  uint64_t next = 0;
  for (const size_t i : order) {
    const auto [offset, size] = places[i];
    const std::string what = "tensor " + io::quoted(tensors[i].name);
    // In this order no sum can wrap: both are at most data.size() afterwards.
    if (offset > data.size() || size > data.size() - offset) {
      fail(source, what + " needs " + std::to_string(size) + " bytes at data offset " +
                       std::to_string(offset) + ", but the file holds only " + std::to_string(data.size()) +
                       " bytes of data");
    }
    if (offset < next) fail(source, what + " overlaps the one before it");
    if (offset > next) fail(source, what + " leaves a hole before it");
    tensors[i].bytes = data.subspan(offset, size);
    next = (offset + size + alignment - 1) / alignment * alignment;
  }
}

}  // namespace

std::string_view gguf_type_name(GgufType type) {
  return kValues.at(static_cast<size_t>(type)).name;
}

Gguf Gguf::open(const std::filesystem::path& path) {
  auto file = std::make_unique<MappedFile>(MappedFile::open(path));
  Gguf result = parse(file->bytes(), file->path());
  result.file_ = std::move(file);
  return result;
}

Gguf Gguf::parse(std::span<const std::byte> bytes, std::string source) {
  Gguf result;
  result.source_ = std::move(source);
  ByteReader reader(bytes, result.source_);
  if (bytes.size() < 4 || std::memcmp(bytes.data(), "GGUF", 4) != 0) {
    fail(result.source_, "not a GGUF file: it does not begin with the letters GGUF");
  }
  reader.take(4, "the magic");
  result.version_ = reader.number<uint32_t>("the version");
  if (result.version_ == 0x02000000 || result.version_ == 0x03000000) {
    fail(result.source_, "a big-endian GGUF file, which Regard does not read");
  }
  if (result.version_ != 2 && result.version_ != 3) {
    fail(result.source_,
         "GGUF version " + std::to_string(result.version_) + "; Regard reads the versions 2 and 3");
  }
  const auto tensor_count = reader.number<uint64_t>("the number of tensors");
  const auto key_count = reader.number<uint64_t>("the number of keys");
  // The smallest tensor entry: length, one letter, no size, type, offset; the smallest key: length, letter,
  // type, byte.
  constexpr uint64_t smallest_tensor = 8 + 1 + 4 + 4 + 8;
  constexpr uint64_t smallest_key = 8 + 1 + 4 + 1;
  if (tensor_count > reader.left() / smallest_tensor) {
    reader.refuse(std::to_string(tensor_count) + " tensors do not fit in the " +
                  std::to_string(reader.left()) + " bytes left in the file");
  }
  if (key_count > reader.left() / smallest_key) {
    reader.refuse(std::to_string(key_count) + " keys do not fit in the " + std::to_string(reader.left()) +
                  " bytes left in the file");
  }

  result.keys_.reserve(key_count);
  result.values_.reserve(key_count);
  for (uint64_t i = 0; i < key_count; ++i) {
    const std::string_view key = read_key(reader, i);
    if (result.has(key)) reader.refuse("key " + io::quoted(key) + " is given twice");
    result.keys_.push_back(key);
    result.values_.emplace(key, read_value(reader, std::string(key)));
  }
  uint32_t alignment = 32;
  if (const GgufValue* value = result.value("general.alignment")) {
    if (value->type != GgufType::u32 || value->is_array) {
      fail(result.source_, "key \"general.alignment\" must be of type UINT32");
    }
    std::memcpy(&alignment, value->bytes.data(), sizeof(alignment));
    if (alignment < 8 || alignment > 65536 || (alignment & (alignment - 1)) != 0) {
      fail(result.source_, "key \"general.alignment\" is " + std::to_string(alignment) +
                               "; it must be a power of two from 8 to 65536");
    }
  }

  std::vector<TensorPlace> places;
  places.reserve(tensor_count);
  result.tensors_.resize(tensor_count);
  result.by_name_.reserve(tensor_count);
  for (uint64_t i = 0; i < tensor_count; ++i) {
    places.push_back(read_tensor_info(reader, i, alignment, result.tensors_[i]));
    if (!result.by_name_.emplace(result.tensors_[i].name, i).second) {
      reader.refuse("tensor " + io::quoted(result.tensors_[i].name) + " is given twice");
    }
  }
  const uint64_t data_start =
      std::min<uint64_t>((reader.offset() + alignment - 1) / alignment * alignment, bytes.size());
  place_tensors(result.tensors_, places, alignment, bytes.subspan(data_start), result.source_);
  return result;
}

const Tensor* Gguf::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

const Tensor& Gguf::require(std::string_view name) const {
  const Tensor* tensor = find(name);
  if (tensor == nullptr) fail(source_, "tensor " + io::quoted(name) + " is missing");
  return *tensor;
}

}  // namespace regard::io

#include "regard/io/npy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "regard/io/byte_reader.h"
#include "regard/io/error.h"

namespace regard::io {
namespace {

constexpr size_t kMaxDimensions = 32;
constexpr std::string_view kMagic("\x93NUMPY", 6);

constexpr std::array<std::pair<std::string_view, Type>, 9> kDescriptions = {{{"<f4", Type::f32},
                                                                             {"<f8", Type::f64},
                                                                             {"<f2", Type::f16},
                                                                             {"|i1", Type::i8},
                                                                             {"|u1", Type::u8},
                                                                             {"<i2", Type::i16},
                                                                             {"<i4", Type::i32},
                                                                             {"<i8", Type::i64},
                                                                             {"|b1", Type::boolean}}};

// The header is a Python dictionary of three entries:
// {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
class HeaderReader {
 public:
  HeaderReader(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  std::string description;  // empty: a structured type
  bool fortran_order = false;
  std::vector<int64_t> shape;

  void read() {
    bool seen[3] = {};
    expect('{');
    while (!accept('}')) {
      const std::string_view key = string();
      expect(':');
      const int which = key == "descr" ? 0 : key == "fortran_order" ? 1 : key == "shape" ? 2 : -1;
      if (which < 0) refuse("has the unknown entry " + io::quoted(key));
      if (std::exchange(seen[which], true)) refuse("gives " + std::string(key) + " twice");
      if (which == 0) read_description();
      if (which == 1) fortran_order = read_truth();
      if (which == 2) read_shape();
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) refuse("has text after its end");
    if (!seen[0] || !seen[1] || !seen[2]) refuse("lacks descr, fortran_order or shape");
  }

 private:
  void read_description() {
    skip_space();
    if (at_ < text_.size() && text_[at_] == '[') {
      // Fields of a record: skipped up to the bracket that closes the list.
      int depth = 0;
      do {
        if (at_ == text_.size()) refuse("ends inside descr");
        if (text_[at_] == '[') ++depth;
        if (text_[at_] == ']') --depth;
        ++at_;
      } while (depth > 0);
      return;
    }
    description = string();
  }

  bool read_truth() {
    skip_space();
    for (const auto& [word, value] : {std::pair{std::string_view("True"), true}, {"False", false}}) {
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    }
    refuse("has a fortran_order that is neither True nor False");
  }

  void read_shape() {
    expect('(');
    while (!accept(')')) {
      skip_space();
      int64_t size = 0;
      const char* end = text_.data() + text_.size();
      const auto [next, error] = std::from_chars(text_.data() + at_, end, size);
      if (error != std::errc() || size < 0) refuse("has a shape that is not made of whole numbers from 0 up");
      if (shape.size() == kMaxDimensions) refuse("has more than 32 dimensions");
      shape.push_back(size);
      at_ = static_cast<size_t>(next - text_.data());
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
  }

  std::string_view string() {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : ' ';
    if (quote != '\'' && quote != '"') refuse("has something else where a string is needed");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) refuse("has a string without end");
    const std::string_view content = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return content;
  }

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }

  bool accept(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void expect(char c) {
    if (!accept(c)) refuse(std::string("lacks a '") + c + "'");
  }

  [[noreturn]] void refuse(const std::string& what) const {
    fail(source_, "the NPY header " + what + " (character " + std::to_string(at_) + ")");
  }

  std::string_view text_;
  const std::string& source_;
  size_t at_ = 0;
};

}  // namespace

std::string npy_header(const Tensor& array) {
  const auto description = std::find_if(kDescriptions.begin(), kDescriptions.end(),
                                        [&](const auto& d) { return d.second == array.type; });
  if (description == kDescriptions.end()) {
    throw std::invalid_argument("NPY: array " + io::quoted(array.name) + " has type " +
                                std::string(type_name(array.type)) + ", which NumPy does not have");
  }
  int64_t bytes = 0;
  if (!count_bytes(array.type, array.shape, bytes) || static_cast<uint64_t>(bytes) != array.bytes.size() ||
      array.shape.size() > kMaxDimensions) {
    throw std::invalid_argument("NPY: array " + io::quoted(array.name) + " has " +
                                std::to_string(array.bytes.size()) + " bytes, which do not fit its shape " +
                                array.shape_text());
  }
  std::string dictionary =
      "{'descr': '" + std::string(description->first) + "', 'fortran_order': False, 'shape': (";
  for (const int64_t size : array.shape) dictionary += std::to_string(size) + ", ";
  if (array.shape.size() > 1) dictionary.resize(dictionary.size() - 2);
  if (array.shape.size() == 1) dictionary.pop_back();
  dictionary += "), }";
  // Magic, version 1.0 and a two-byte length come before; the data begin at a multiple of 64.
  const size_t total = (10 + dictionary.size() + 1 + 63) / 64 * 64;
  dictionary.append(total - 10 - dictionary.size() - 1, ' ');
  dictionary += '\n';
  std::string header(kMagic);
  header += std::string{'\1', '\0', static_cast<char>(dictionary.size() & 255),
                        static_cast<char>(dictionary.size() >> 8)};
  return header + dictionary;
}

NpyArray parse_npy(std::span<const std::byte> bytes, const std::string& source) {
  ByteReader reader(bytes, source);
  if (bytes.size() < kMagic.size() || reader.text(kMagic.size(), "the magic") != kMagic) {
    fail(source, "not an NPY array: it does not begin with \\x93NUMPY");
  }
  const auto major = reader.number<uint8_t>("the version");
  const auto minor = reader.number<uint8_t>("the version");
  if (major < 1 || major > 3 || minor != 0) {
    fail(source,
         "NPY version " + std::to_string(major) + "." + std::to_string(minor) + "; Regard reads 1.0 to 3.0");
  }
  const uint32_t length = major == 1 ? reader.number<uint16_t>("the header's length")
                                     : reader.number<uint32_t>("the header's length");
  HeaderReader header(reader.text(length, "the header"), source);
  header.read();

  NpyArray result;
  result.fortran_order = header.fortran_order;
  result.array.shape = std::move(header.shape);
  const auto description = std::find_if(kDescriptions.begin(), kDescriptions.end(), [&](const auto& d) {
    return d.first.substr(1) ==
               std::string_view(header.description).substr(std::min<size_t>(1, header.description.size())) &&
           (d.first[0] == header.description[0] || (d.first[0] == '|' && header.description[0] == '<'));
  });
  if (description == kDescriptions.end()) {
    result.unsupported = header.description.empty()
                             ? "it holds records"
                             : "its type is " + io::quoted(header.description, 16) +
                                   "; Regard reads f2, f4, f8, i1, i2, i4, i8, u1 and b1, little-endian";
    return result;
  }
  result.array.type = description->second;
  int64_t needed = 0;
  if (!count_bytes(result.array.type, result.array.shape, needed)) {
    fail(source, "the array has too many elements, " + result.array.shape_text());
  }
  if (static_cast<uint64_t>(needed) != reader.left()) {
    fail(source, "the array " + result.array.shape_text() + " needs " + std::to_string(needed) +
                     " bytes; there are " + std::to_string(reader.left()));
  }
  result.array.bytes = reader.take(reader.left(), "the array");
  return result;
}

std::vector<std::byte> to_c_order(const Tensor& fortran) {
  const auto size = static_cast<size_t>(block_bytes(fortran.type));
  const size_t rank = fortran.shape.size();
  std::vector<size_t> stride(rank, 1);  // in elements, of the Fortran order
  for (size_t d = 1; d < rank; ++d) stride[d] = stride[d - 1] * static_cast<size_t>(fortran.shape[d - 1]);
  std::vector<std::byte> result(fortran.bytes.size());
  std::vector<int64_t> index(rank, 0);
  size_t from = 0;
  for (size_t to = 0; to < result.size(); to += size) {
    std::memcpy(result.data() + to, fortran.bytes.data() + from * size, size);
    for (size_t d = rank; d-- > 0;) {
      from += stride[d];
      if (++index[d] < fortran.shape[d]) break;
      from -= stride[d] * static_cast<size_t>(index[d]);
      index[d] = 0;
    }
  }
  return result;
}

}  // namespace regard::io

#include "regard/io/e5_file.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "regard/io/byte_reader.h"
#include "regard/io/error.h"

namespace regard::io {
namespace {

// Well above any model of this kind; small enough that no product of two of them leaves int64_t.
constexpr int32_t kMaxSize = 1 << 24;
constexpr int64_t kMaxPieceBytes = 1 << 16;

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80       ? 1
                          : lead >> 5 == 6  ? 2
                          : lead >> 4 == 14 ? 3
                          : lead >> 3 == 30 ? 4
                                            : 0;
    if (length == 0 || length > text.size() - i) return false;
    char32_t code = length == 1 ? lead : lead & (0x7fu >> length);
    for (size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if (next >> 6 != 2) return false;
      code = code << 6 | (next & 0x3f);
    }
    static constexpr std::array<char32_t, 5> shortest = {0, 0, 0x80, 0x800, 0x10000};
    if (code < shortest[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
    i += length;
  }
  return true;
}

bool is_scalar_value(uint32_t code) {
  return code <= 0x10ffff && (code < 0xd800 || code >= 0xe000);
}

int64_t read_size(ByteReader& reader, std::string_view what, int32_t lowest = 1) {
  const auto size = reader.number<int32_t>(what);
  if (size < lowest || size > kMaxSize) {
    reader.refuse(std::string(what) + " is " + std::to_string(size) + "; " + std::to_string(lowest) + " to " +
                  std::to_string(kMaxSize) + " is allowed");
  }
  return size;
}

E5Config read_config(ByteReader& reader) {
  E5Config config;
  config.width = read_size(reader, "the width");
  config.layers = read_size(reader, "the number of layers");
  config.heads = read_size(reader, "the number of heads");
  config.feed_forward = read_size(reader, "the feed-forward width");
  config.vocabulary = read_size(reader, "the vocabulary");
  config.positions = read_size(reader, "the number of positions");
  config.token_types = read_size(reader, "the number of token types");
  config.epsilon = reader.number<float>("epsilon");
  if (!(config.epsilon > 0 && config.epsilon < 1)) reader.refuse("epsilon must lie between 0 and 1");
  if (config.width % config.heads != 0) {
    reader.refuse("the width " + std::to_string(config.width) + " is no multiple of the " +
                  std::to_string(config.heads) + " heads");
  }
  const auto block = reader.number<int32_t>("the block size");
  if (block != 32) reader.refuse("blocks of " + std::to_string(block) + " elements; 32 is allowed");
  return config;
}

void read_pieces(ByteReader& reader, E5Tokenizer& tokenizer, int64_t vocabulary) {
  const int64_t count = read_size(reader, "the number of pieces");
  if (count > vocabulary) {
    reader.refuse(std::to_string(count) + " pieces, but only " + std::to_string(vocabulary) + " embeddings");
  }
  for (int64_t* id : {&tokenizer.bos, &tokenizer.eos, &tokenizer.pad, &tokenizer.unknown}) {
    *id = read_size(reader, "the id of a special piece", 0);
    if (*id >= count) {
      reader.refuse("the special piece " + std::to_string(*id) + " is not among the " +
                    std::to_string(count) + " pieces");
    }
  }
  const auto blob_size = reader.number<uint64_t>("the pieces' length");
  const auto offsets = reader.take(static_cast<uint64_t>(count + 1) * 4, "the pieces' offsets");
  const auto scores = reader.take(static_cast<uint64_t>(count) * 4, "the scores");
  const std::string_view blob = reader.text(blob_size, "the pieces");

  tokenizer.scores.resize(static_cast<size_t>(count));
  std::memcpy(tokenizer.scores.data(), scores.data(), scores.size());
  tokenizer.pieces.reserve(static_cast<size_t>(count));
  uint32_t begin = 0;
  std::memcpy(&begin, offsets.data(), 4);
  if (begin != 0) reader.refuse("the first piece does not begin at 0");
  for (int64_t i = 0; i < count; ++i) {
    uint32_t end = 0;
    std::memcpy(&end, offsets.data() + (i + 1) * 4, 4);
    const std::string piece = "piece " + std::to_string(i);
    if (end < begin || end > blob_size) reader.refuse(piece + " ends outside the pieces");
    if (end - begin > kMaxPieceBytes)
      reader.refuse(piece + " is longer than " + std::to_string(kMaxPieceBytes) + " bytes");
    tokenizer.pieces.push_back(blob.substr(begin, end - begin));
    if (!is_utf8(tokenizer.pieces.back())) reader.refuse(piece + " is not valid UTF-8");
    if (!std::isfinite(tokenizer.scores[static_cast<size_t>(i)]))
      reader.refuse(piece + " has no finite score");
    begin = end;
  }
  if (begin != blob_size) reader.refuse("bytes follow the last piece");
}

void read_normalization(ByteReader& reader, E5Tokenizer& tokenizer) {
  const int64_t count = read_size(reader, "the number of normalisation records", 0);
  const auto bytes = reader.number<uint32_t>("the length of the normalisation records");
  const uint64_t end = reader.offset() + bytes;
  if (bytes > reader.left() || static_cast<uint64_t>(count) * 5 > bytes) {
    reader.refuse(std::to_string(count) + " normalisation records do not fit in " + std::to_string(bytes) +
                  " bytes");
  }
  tokenizer.normalization.reserve(static_cast<size_t>(count));
  std::optional<char32_t> previous;
  for (int64_t i = 0; i < count; ++i) {
    const std::string what = "normalisation record " + std::to_string(i);
    const auto from = reader.number<uint32_t>(what);
    const auto length = reader.number<uint8_t>(what);
    const auto to = reader.take(uint64_t{4} * length, what);
    if (!is_scalar_value(from))
      reader.refuse(what + " is for " + std::to_string(from) + ", not a code point");
    if (previous && from <= *previous) reader.refuse(what + " is not in rising order of code points");
    previous = from;
    E5Normalization record{from, std::vector<char32_t>(length)};
    if (length > 0) std::memcpy(record.to.data(), to.data(), to.size());
    for (const char32_t code : record.to) {
      if (!is_scalar_value(code))
        reader.refuse(what + " yields " + std::to_string(code) + ", not a code point");
    }
    tokenizer.normalization.push_back(std::move(record));
  }
  if (reader.offset() != end) reader.refuse("the normalisation records have another length than announced");
}

// The published name and shape of a tensor of the file; an empty shape where the name is unknown.
struct Known {
  std::string name;
  std::vector<int64_t> shape;
};

Known published(std::string_view name, const E5Config& config) {
  const int64_t width = config.width;
  if (name == "emb.word") return {"embeddings.word_embeddings.weight", {config.vocabulary, width}};
  if (name == "emb.pos") return {"embeddings.position_embeddings.weight", {config.positions, width}};
  if (name == "emb.type") return {"embeddings.token_type_embeddings.weight", {config.token_types, width}};
  if (name == "emb.ln.w") return {"embeddings.LayerNorm.weight", {width}};
  if (name == "emb.ln.b") return {"embeddings.LayerNorm.bias", {width}};

  // l<layer>.<part>.<w or b>
  const size_t dot = name.find('.');
  const size_t last = name.rfind('.');
  if (!name.starts_with('l') || dot == std::string_view::npos || last == dot) return {};
  const std::string_view digits = name.substr(1, dot - 1);
  int64_t layer = 0;
  if (digits.empty() || digits.size() > 8 || (digits.size() > 1 && digits[0] == '0')) return {};
  for (const char c : digits) {
    if (c < '0' || c > '9') return {};
    layer = layer * 10 + (c - '0');
  }
  const std::string_view part = name.substr(dot + 1, last - dot - 1);
  const std::string_view kind = name.substr(last + 1);
  if (layer >= config.layers || (kind != "w" && kind != "b")) return {};

  struct Part {
    std::string_view short_name, published;
    int64_t out, in;  // in = 0: a norm, whose weight is a vector
  };
  const Part parts[] = {{"q", "attention.self.query", width, width},
                        {"k", "attention.self.key", width, width},
                        {"v", "attention.self.value", width, width},
                        {"ao", "attention.output.dense", width, width},
                        {"aln", "attention.output.LayerNorm", width, 0},
                        {"fi", "intermediate.dense", config.feed_forward, width},
                        {"fo", "output.dense", width, config.feed_forward},
                        {"oln", "output.LayerNorm", width, 0}};
  for (const Part& p : parts) {
    if (p.short_name != part) continue;
    const bool matrix = kind == "w" && p.in > 0;
    return {"encoder.layer." + std::to_string(layer) + "." + std::string(p.published) +
                (kind == "w" ? ".weight" : ".bias"),
            matrix ? std::vector<int64_t>{p.out, p.in} : std::vector<int64_t>{p.out}};
  }
  return {};
}

Tensor read_tensor(ByteReader& reader, const E5Config& config, std::span<const std::byte> file,
                   int64_t index) {
  const std::string entry = "entry " + std::to_string(index) + " of the directory";
  const auto length = reader.number<uint16_t>(entry);
  const std::string name(reader.text(length, entry));
  const auto dtype = reader.number<uint8_t>(entry);
  const auto count = reader.number<uint32_t>(entry);
  const auto offset = reader.number<uint64_t>(entry);
  const auto bytes = reader.number<uint64_t>(entry);

  const std::string what = "tensor " + io::quoted(name);
  Known known = published(name, config);
  if (known.shape.empty()) reader.refuse(what + " is not a tensor of this model");
  if (dtype > 1)
    reader.refuse(what + " has type " + std::to_string(dtype) + "; 0 (f32) or 1 (q4_0) is allowed");
  Tensor tensor{std::move(known.name), dtype == 0 ? Type::f32 : Type::q4_0, std::move(known.shape), {}};
  int64_t expected = 0;
  if (!count_bytes(tensor.type, tensor.shape, expected)) {
    reader.refuse(what + " has rows that are no whole number of blocks");
  }
  if (count != static_cast<uint64_t>(tensor.elements()) || bytes != static_cast<uint64_t>(expected)) {
    reader.refuse(what + " has " + std::to_string(count) + " elements in " + std::to_string(bytes) +
                  " bytes; its shape " + tensor.shape_text() + " needs " + std::to_string(tensor.elements()) +
                  " in " + std::to_string(expected));
  }
  if (offset > file.size() || bytes > file.size() - offset) reader.refuse(what + " lies outside the file");
  if (offset % 4 != 0) reader.refuse(what + " is not aligned to 4 bytes");
  tensor.bytes = file.subspan(offset, bytes);
  return tensor;
}

// The tensors must lie behind the directory, in its order, without overlap.
void check_layout(const std::vector<Tensor>& tensors, std::span<const std::byte> file, uint64_t directory_end,
                  const std::string& source) {
  const std::byte* next = file.data() + directory_end;
  for (const Tensor& tensor : tensors) {
    if (tensor.bytes.data() < next) {
      fail(source, "tensor " + io::quoted(tensor.name) + " overlaps what stands before it");
    }
    next = tensor.bytes.data() + tensor.bytes.size();
  }
}

}  // namespace

E5File E5File::open(const std::filesystem::path& path) {
  auto file = std::make_unique<MappedFile>(MappedFile::open(path));
  E5File result = parse(file->bytes(), file->path());
  result.file_ = std::move(file);
  return result;
}

E5File E5File::parse(std::span<const std::byte> bytes, std::string source) {
  E5File result;
  result.source_ = std::move(source);
  ByteReader reader(bytes, result.source_);
  if (bytes.size() < 4 || std::memcmp(bytes.data(), "E5S1", 4) != 0) {
    fail(result.source_, "not an E5S1 file: it does not begin with the letters E5S1");
  }
  reader.take(4, "the magic");
  const auto version = reader.number<uint32_t>("the version");
  if (version != 1) reader.refuse("version " + std::to_string(version) + "; Regard reads version 1");
  result.config_ = read_config(reader);
  read_pieces(reader, result.tokenizer_, result.config_.vocabulary);
  read_normalization(reader, result.tokenizer_);

  const int64_t count = read_size(reader, "the number of tensors", 0);
  constexpr uint64_t smallest_entry = 2 + 1 + 4 + 8 + 8;
  if (static_cast<uint64_t>(count) > reader.left() / smallest_entry) {
    reader.refuse(std::to_string(count) + " tensors do not fit in the " + std::to_string(reader.left()) +
                  " bytes left in the file");
  }
  result.tensors_.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    result.tensors_.push_back(read_tensor(reader, result.config_, bytes, i));
    const std::string& name = result.tensors_.back().name;
    if (!result.by_name_.emplace(name, static_cast<size_t>(i)).second) {
      reader.refuse("tensor " + io::quoted(name) + " is given twice");
    }
  }
  check_layout(result.tensors_, bytes, reader.offset(), result.source_);
  return result;
}

const Tensor* E5File::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

const Tensor& E5File::require(std::string_view name) const {
  const Tensor* tensor = find(name);
  if (tensor == nullptr) fail(source_, "tensor " + io::quoted(name) + " is missing");
  return *tensor;
}

}  // namespace regard::io

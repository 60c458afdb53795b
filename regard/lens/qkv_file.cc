#include "regard/lens/qkv_file.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <unordered_map>

#include "regard/io/error.h"
#include "regard/io/npz.h"
#include "regard/kernel/types.h"
#include "regard/lens/head_scores.h"
#include "regard/lens/units.h"

namespace regard::lens {
namespace {

using io::Tensor;

constexpr int64_t kWholeMapsBytes = int64_t{64} << 20;

// q, k or v as [layers, heads, tokens, size].
struct Array {
  const Tensor* tensor = nullptr;
  int64_t layers = 1, heads = 0, tokens = 0, size = 0;
  std::vector<float> values;

  std::span<const float> layer(int64_t index) const {
    const auto count = static_cast<size_t>(heads * tokens * size);
    return {values.data() + static_cast<size_t>(index) * count, count};
  }
};

Array read_array(const io::Npz& file, const char* name) {
  Array out;
  out.tensor = &file.require(name);
  const std::vector<int64_t>& shape = out.tensor->shape;
  if ((shape.size() != 3 && shape.size() != 4) || out.tensor->elements() == 0) {
    io::fail(file.source(), std::string(name) + " has shape " + out.tensor->shape_text() +
                                "; [heads, tokens, size] or [layers, heads, tokens, size] is needed");
  }
  const size_t skip = shape.size() - 3;
  if (skip == 1) out.layers = shape[0];
  out.heads = shape[skip];
  out.tokens = shape[skip + 1];
  out.size = shape[skip + 2];
  out.values = io::to_floats(*out.tensor);
  for (const float value : out.values) {
    if (!std::isfinite(value)) io::fail(file.source(), std::string(name) + " holds NaN or infinity");
  }
  return out;
}

void require_fit(const io::Npz& file, const Array& q, const Array& other, const char* name, bool same_size) {
  const bool fits = other.layers == q.layers && other.tokens == q.tokens && q.heads % other.heads == 0 &&
                    (!same_size || other.size == q.size);
  if (fits) return;
  io::fail(file.source(),
           std::string(name) + " has shape " + other.tensor->shape_text() + ", which does not fit q " +
               q.tensor->shape_text() +
               ": layers and tokens must be equal and the key heads must divide the query heads");
}

std::optional<double> scalar(const io::Npz& file, const char* name) {
  const Tensor* tensor = file.find(name);
  if (tensor == nullptr) return {};
  if (tensor->elements() != 1) io::fail(file.source(), std::string(name) + " must be one number");
  return io::to_floats(*tensor).front();
}

// The dense masks of each layer: null where everything is visible.
struct Masks {
  std::vector<std::shared_ptr<const std::vector<uint8_t>>> of_layer;
  bool causal = false;  // each is exactly the lower triangle, so no dense mask is kept
};

bool is_lower_triangle(const std::vector<uint8_t>& mask, int64_t n) {
  for (size_t i = 0; i < mask.size(); ++i) {
    const int64_t row = static_cast<int64_t>(i) / n % n;
    const int64_t key = static_cast<int64_t>(i) % n;
    if ((mask[i] != 0) != (key <= row)) return false;
  }
  return true;
}

Masks read_masks(const io::Npz& file, const Array& q) {
  Masks masks;
  masks.of_layer.resize(static_cast<size_t>(q.layers));
  const Tensor* tensor = file.find("mask");
  if (tensor == nullptr) return masks;
  const std::vector<int64_t>& shape = tensor->shape;
  const size_t n = shape.size();
  const bool square = n >= 2 && n <= 4 && shape[n - 1] == q.tokens && shape[n - 2] == q.tokens;
  const int64_t heads = n >= 3 ? shape[n - 3] : 1;
  const int64_t layers = n == 4 ? shape[0] : 1;
  if (!square || (heads != 1 && heads != q.heads) || (layers != 1 && layers != q.layers)) {
    io::fail(file.source(),
             "mask has shape " + tensor->shape_text() + "; [tokens, tokens], [heads, tokens, tokens] " +
                 "or [layers, heads, tokens, tokens] with " + std::to_string(q.tokens) + " tokens is needed");
  }
  if (io::is_float(tensor->type)) {
    io::fail(file.source(),
             "mask holds floats; it must be boolean or integer with true = may attend (from an "
             "additive mask of 0 and -inf: mask == 0)");
  }
  const std::vector<float> values = io::to_floats(*tensor);
  const auto per_layer = static_cast<size_t>(heads * q.tokens * q.tokens);
  masks.causal = true;
  for (int64_t layer = 0; layer < q.layers; ++layer) {
    const float* from = values.data() + (layers > 1 ? static_cast<size_t>(layer) * per_layer : 0);
    auto mask = std::make_shared<std::vector<uint8_t>>(per_layer);
    for (size_t i = 0; i < per_layer; ++i) (*mask)[i] = from[i] != 0 ? 1 : 0;
    masks.causal = masks.causal && is_lower_triangle(*mask, q.tokens);
    if (std::find(mask->begin(), mask->end(), 0) != mask->end())
      masks.of_layer[static_cast<size_t>(layer)] = mask;
  }
  if (masks.causal) std::fill(masks.of_layer.begin(), masks.of_layer.end(), nullptr);
  return masks;
}

std::vector<std::string> read_lines(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in || std::filesystem::is_directory(path)) {
    io::fail(path.string(), "cannot be read as a list of tokens, one a line");
  }
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    lines.push_back(std::move(line));
  }
  return lines;
}

bool looks_special(std::string_view piece) {
  if (piece.size() >= 3 && piece.front() == '[' && piece.back() == ']') {
    return std::all_of(piece.begin() + 1, piece.end() - 1, [](unsigned char c) {
      return std::isupper(c) != 0 || c == '_' || std::isdigit(c) != 0;
    });
  }
  if (piece.starts_with("<|") && piece.ends_with("|>")) return true;
  for (const char* name : {"<s>", "</s>", "<pad>", "<unk>", "<bos>", "<eos>", "<mask>", "<cls>", "<sep>"}) {
    if (piece == name) return true;
  }
  return false;
}

bool has_letter_or_digit(std::string_view piece) {
  // Bytes beyond ASCII are taken for letters: a file of pieces does not say more.
  return std::any_of(piece.begin(), piece.end(),
                     [](unsigned char c) { return c >= 0x80 || std::isalnum(c) != 0; });
}

Tensor view_of(const char* name, std::vector<int64_t> shape, const std::vector<std::byte>& bytes,
               Precision precision) {
  return {name, precision == Precision::f32 ? io::Type::f32 : io::Type::f16, std::move(shape), bytes};
}

}  // namespace

void describe_pieces(const std::vector<std::string>& pieces, Recording& recording) {
  static constexpr std::string_view kByteSpace = "\u0120";  // Ġ, GPT-2's space
  static constexpr std::string_view kMetaSpace = "\u2581";  // SentencePiece's
  bool starts_marked = false;
  bool continues_marked = false;
  for (const std::string& piece : pieces) {
    starts_marked |= piece.starts_with(kByteSpace) || piece.starts_with(kMetaSpace);
    continues_marked |= piece.size() > 2 && piece.starts_with("##");
  }
  std::unordered_map<std::string, int64_t> ids;
  bool after_special = true;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const std::string& piece = pieces[i];
    Token token;
    token.id = ids.try_emplace(piece, static_cast<int64_t>(ids.size())).first->second;
    token.piece = piece;
    token.text = piece;
    token.special = looks_special(piece);
    std::string_view bare = piece;
    bool starts = true;
    if (starts_marked) {
      starts = bare.starts_with(kByteSpace) || bare.starts_with(kMetaSpace);
      if (bare.starts_with(kByteSpace)) bare.remove_prefix(kByteSpace.size());
      if (bare.starts_with(kMetaSpace)) bare.remove_prefix(kMetaSpace.size());
      if (!bare.empty()) token.text = bare;
    } else if (continues_marked && piece.size() > 2 && piece.starts_with("##")) {
      starts = false;
      bare.remove_prefix(2);
    }
    token.punctuation = !token.special && !has_letter_or_digit(bare);
    starts |= token.special || token.punctuation || after_special || recording.words.empty() ||
              recording.words.back().punctuation;
    after_special = token.special;
    if (starts) {
      recording.words.push_back({std::string(bare.empty() ? std::string_view(piece) : bare),
                                 static_cast<int64_t>(i), 1, token.special, token.punctuation});
    } else {
      recording.words.back().text += bare;
      ++recording.words.back().count;
    }
    if (starts && i > 0) recording.text += ' ';
    recording.text += bare;
    recording.tokens.push_back(std::move(token));
  }
}

Recording read_qkv(const std::filesystem::path& npz, const std::optional<std::filesystem::path>& tokens,
                   Precision precision) {
  const io::Npz file = io::Npz::open(npz);
  const Array q = read_array(file, "q");
  const Array k = read_array(file, "k");
  require_fit(file, q, k, "k", true);
  std::optional<Array> v;
  if (file.find("v") != nullptr) {
    v = read_array(file, "v");
    require_fit(file, q, *v, "v", false);
    if (v->heads != k.heads)
      io::fail(file.source(),
               "v has " + std::to_string(v->heads) + " heads and k " + std::to_string(k.heads));
  }
  const Masks masks = read_masks(file, q);
  const std::optional<double> scale = scalar(file, "scale");
  const auto window = static_cast<int64_t>(scalar(file, "window").value_or(0));
  if (window < 0)
    io::fail(file.source(), "window is " + std::to_string(window) + "; it must be 1 or more, or 0 for none");
  std::vector<float> numbers;
  if (const Tensor* given = file.find("layers")) numbers = io::to_floats(*given);
  if (!numbers.empty() && static_cast<int64_t>(numbers.size()) != q.layers) {
    io::fail(file.source(), "layers has " + std::to_string(numbers.size()) + " numbers for " +
                                std::to_string(q.layers) + " layers");
  }

  Recording recording;
  recording.model = npz.filename().string();
  recording.precision = precision;
  recording.model_layers = q.layers;
  recording.causal = scalar(file, "causal").value_or(0) != 0 || masks.causal;
  std::vector<std::string> pieces;
  if (tokens) {
    pieces = read_lines(*tokens);
    if (static_cast<int64_t>(pieces.size()) != q.tokens) {
      io::fail(tokens->string(), "holds " + std::to_string(pieces.size()) + " tokens; q in " + file.source() +
                                     " has " + std::to_string(q.tokens));
    }
    describe_pieces(pieces, recording);
  } else {
    for (int64_t i = 0; i < q.tokens; ++i) {
      Token token;
      token.piece = token.text = std::to_string(i);
      recording.tokens.push_back(std::move(token));
    }
  }
  for (int64_t index = 0; index < q.layers; ++index) {
    RecordedLayer layer;
    layer.layer = numbers.empty() ? index : static_cast<int64_t>(numbers[static_cast<size_t>(index)]);
    recording.model_layers = std::max(recording.model_layers, layer.layer + 1);
    layer.spec.scale = scale ? static_cast<float>(*scale) : 1.0F / std::sqrt(static_cast<float>(q.size));
    if (recording.causal) layer.spec.mask = attention::Mask::causal(attention::Align::top_left);
    if (window > 0) {
      const int64_t right = recording.causal ? 0 : -1;
      layer.spec.mask =
          layer.spec.mask & attention::Mask::window(window - 1, right, attention::Align::top_left);
    }
    layer.dense_mask = masks.of_layer[static_cast<size_t>(index)];
    if (layer.dense_mask) layer.spec.mask = layer.spec.mask & attention::Mask::dense();
    layer.heads = q.heads;
    layer.kv_heads = k.heads;
    layer.tokens = q.tokens;
    layer.key_size = q.size;
    layer.precision = precision;
    layer.q = RecordedLayer::pack(q.layer(index), precision);
    layer.k = RecordedLayer::pack(k.layer(index), precision);
    if (v) {
      layer.value_size = v->size;
      layer.v = RecordedLayer::pack(v->layer(index), precision);
    }
    compute_lse(layer);
    recording.layers.push_back(std::move(layer));
  }
  check(recording);
  return recording;
}

void write_qkv(const std::filesystem::path& npz, const Recording& recording) {
  if (recording.layers.empty()) throw std::invalid_argument("no layer was kept: there is nothing to write");
  const RecordedLayer& like = recording.layers.front();
  const auto layers = static_cast<int64_t>(recording.layers.size());
  const int64_t n = like.tokens;
  std::vector<std::byte> q, k, v;
  std::vector<float> lse, entropy, columns, weights;
  std::vector<int64_t> numbers, ids;
  const bool whole_maps = layers * like.heads * n * n * 4 <= kWholeMapsBytes;
  for (const RecordedLayer& layer : recording.layers) {
    if (layer.heads != like.heads || layer.kv_heads != like.kv_heads || layer.key_size != like.key_size ||
        layer.value_size != like.value_size || layer.scale() != like.scale() ||
        layer.window() != like.window()) {
      throw std::invalid_argument("layers " + std::to_string(like.layer) + " and " +
                                  std::to_string(layer.layer) +
                                  " differ in shape, scale or window; choose one with --layers");
    }
    q.insert(q.end(), layer.q.begin(), layer.q.end());
    k.insert(k.end(), layer.k.begin(), layer.k.end());
    v.insert(v.end(), layer.v.begin(), layer.v.end());
    lse.insert(lse.end(), layer.lse.begin(), layer.lse.end());
    numbers.push_back(layer.layer);
    for (int64_t head = 0; head < layer.heads; ++head) {
      std::vector<float> sums(static_cast<size_t>(n));
      for (int64_t row = 0; row < n; ++row) {
        const std::vector<float> of_row = layer.weights_row(head, row);
        entropy.push_back(row_statistics(of_row, layer.visible(head, row).count).entropy);
        for (size_t j = 0; j < of_row.size(); ++j) sums[j] += of_row[j];
        if (whole_maps) weights.insert(weights.end(), of_row.begin(), of_row.end());
      }
      columns.insert(columns.end(), sums.begin(), sums.end());
    }
  }
  for (const Token& token : recording.tokens) ids.push_back(token.id);
  const std::vector<int64_t> causal{recording.causal ? 1 : 0};
  const std::vector<float> scale{like.scale()};
  const std::vector<int64_t> window{like.window()};
  std::vector<Tensor> arrays;
  arrays.push_back(view_of("q", {layers, like.heads, n, like.key_size}, q, like.precision));
  arrays.push_back(view_of("k", {layers, like.kv_heads, n, like.key_size}, k, like.precision));
  if (like.value_size > 0) {
    arrays.push_back(view_of("v", {layers, like.kv_heads, n, like.value_size}, v, like.precision));
  }
  arrays.push_back(io::view("lse", {layers, like.heads, n}, lse));
  arrays.push_back(io::view("entropy", {layers, like.heads, n}, entropy));
  arrays.push_back(io::view("column_sums", {layers, like.heads, n}, columns));
  if (whole_maps) arrays.push_back(io::view("weights", {layers, like.heads, n, n}, weights));
  arrays.push_back(io::view("layers", {layers}, numbers));
  arrays.push_back(io::view("ids", {n}, ids));
  arrays.push_back(io::view("causal", {1}, causal));
  arrays.push_back(io::view("scale", {1}, scale));
  if (window.front() > 0) arrays.push_back(io::view("window", {1}, window));
  std::vector<uint8_t> mask;
  if (like.dense_mask) {
    const int64_t heads = static_cast<int64_t>(like.dense_mask->size()) / (n * n);
    for (const RecordedLayer& layer : recording.layers) {
      if (!layer.dense_mask || layer.dense_mask->size() != like.dense_mask->size()) {
        throw std::invalid_argument("layers have masks of different shapes; choose one with --layers");
      }
      mask.insert(mask.end(), layer.dense_mask->begin(), layer.dense_mask->end());
    }
    arrays.push_back(io::view("mask", {layers, heads, n, n}, mask));
  }
  io::write_npz(npz, arrays);
}

}  // namespace regard::lens

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "regard/model/load_translator.h"
#include "regard/model/translate.h"

// What a translator looked at while it translated a text.
namespace regard::lens {

// All heads of one attention layer.
struct TranslationMap {
  std::string kind;            // "encoder", "decoder" or "cross"
  int64_t layer = 0;           // of its kind
  at::Tensor weights;          // [heads, rows, keys] float32
  std::vector<float> entropy;  // of each head, mean over its rows, in nats

  std::string name() const { return kind + " " + std::to_string(layer); }
  int64_t heads() const { return weights.size(0); }
};

// Encoder maps: the source's tokens look at each other. Decoder and cross maps: row t is of the step that
// wrote token t; its columns are the tokens read until then (the first of them begins the text) or the
// source's.
struct TranslationReport {
  std::string source_text, text;
  std::vector<std::string> source;   // pieces, the end included
  std::vector<std::string> read;     // what the decoder read: what begins a text, then `written` but its last
  std::vector<std::string> written;  // pieces of the translation
  model::Translation translation;
  std::vector<TranslationMap> maps;  // encoders, decoders, cross; an RNN has at most one, cross

  const TranslationMap* find(std::string_view kind, int64_t layer) const;  // null where there is none
  int64_t layers(std::string_view kind) const;
};

// Translates a text and keeps the weights of all heads, O(L^2) memory: texts for translation are short.
// options: the ids are set from the model. Throws as translate() does, and text::InvalidUtf8.
TranslationReport look_at_translation(const model::LoadedTranslator& loaded, std::string_view text,
                                      const model::TranslateOptions& options);

nlohmann::json to_json(const TranslationReport& report);

// Writes the weights of each kind that there is, "encoder", "decoder" and "cross" [layers, heads, rows,
// keys], their "encoder_entropy", ... [layers, heads], and "ids", those of the translation. Throws
// std::invalid_argument where nothing attended and io::Error for the disk.
void write_npz(const std::filesystem::path& npz, const TranslationReport& report);

// Which source token each token of a translation stands for, from cross-attention.
struct Alignment {
  std::string layer;            // such as "cross 4"
  std::optional<int64_t> head;  // none: the mean over the layer's heads
  at::Tensor soft;              // [written, source] float32
  // The source token that each written token looks at most; ties: the first.
  std::vector<int64_t> hard;
};

// Layers of a model that have cross-attention.
int64_t cross_layers(const model::Translator& model);

// layer: of the decoder; none: the last but one, where translations align best (Garg et al. 2019, arXiv
// 1909.02074), or the only one. weights: Translation::weights of a model with `heads` heads in each layer.
// Throws std::invalid_argument for a layer or head that there is not.
Alignment align(const at::Tensor& weights, int64_t layers, std::optional<int64_t> layer = {},
                std::optional<int64_t> head = {});

}  // namespace regard::lens

#include "regard/cli/look_translation.h"

#include <unistd.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <stdexcept>
#include <utility>
#include <vector>

#include "regard/cli/cells.h"
#include "regard/cli/look_map.h"
#include "regard/cli/look_print.h"
#include "regard/lens/translation.h"

namespace regard::cli {
namespace {

using lens::TranslationMap;
using lens::TranslationReport;

constexpr const char* kKinds[] = {"encoder", "decoder", "cross"};
constexpr int64_t kBeam = 4;

void refuse_others(const Look& options) {
  const std::pair<bool, const char*> given[] = {{!options.token.empty(), "--token"},
                                                {!options.on.empty(), "--on"},
                                                {!options.layers.empty(), "--layers"},
                                                {options.received, "--received"},
                                                {options.words, "--words"},
                                                {options.hide_special, "--hide-special"},
                                                {options.trace, "--trace"},
                                                {options.truncate, "--truncate"},
                                                {!options.compare.empty(), "--compare"},
                                                {!options.pieces.empty(), "--pieces"},
                                                {!options.as.empty(), "--as"},
                                                {!options.html.empty(), "--html"}};
  for (const auto& [is, name] : given) {
    if (is) {
      throw std::invalid_argument(std::string(name) +
                                  " is not for translators; look knows --layer, --head, "
                                  "--json, --npz and --png of them");
    }
  }
}

// The layer that is shown of a kind: the one asked for, else the last but one; null where there is none.
const TranslationMap* shown(const Look& options, const TranslationReport& report, const char* kind) {
  const int64_t layers = report.layers(kind);
  if (layers == 0) return nullptr;
  const int64_t layer = options.layer.value_or(std::max<int64_t>(layers - 2, 0));
  const TranslationMap* map = report.find(kind, layer);
  if (map == nullptr && report.find("cross", layer) == nullptr && report.find("encoder", layer) == nullptr) {
    throw std::invalid_argument("--layer is " + std::to_string(layer) + "; " + kind +
                                " layers are numbered 0 to " + std::to_string(layers - 1));
  }
  if (map != nullptr && options.head && *options.head >= map->heads()) {
    throw std::invalid_argument("--head is " + std::to_string(*options.head) + "; heads are numbered 0 to " +
                                std::to_string(map->heads() - 1));
  }
  return map;
}

Cells cells_of(const Look& options, const TranslationReport& report, const TranslationMap& map) {
  const at::Tensor weights =
      (options.head ? map.weights.select(0, *options.head) : map.weights.mean(0)).contiguous();
  Cells cells;
  cells.rows = map.kind == "encoder" ? report.source : report.written;
  cells.columns = map.kind == "decoder" ? report.read : report.source;
  const auto* data = weights.const_data_ptr<float>();
  cells.values.assign(data, data + weights.numel());
  return cells;
}

std::string title_of(const Look& options, const TranslationMap& map) {
  if (options.head) return map.name() + ", head " + std::to_string(*options.head);
  return map.heads() == 1 ? map.name() : map.name() + ", mean of " + std::to_string(map.heads()) + " heads";
}

// A map of each kind that there is, with its title.
std::vector<std::vector<std::string>> maps_of(const Look& options, const Terminal& terminal,
                                              const TranslationReport& report) {
  std::vector<std::vector<std::string>> blocks;
  for (const char* kind : kKinds) {
    const TranslationMap* map = shown(options, report, kind);
    if (map == nullptr) continue;
    const Cells cells = fewer_columns(cells_of(options, report, *map), columns_that_fit(terminal.width));
    std::vector<std::string> block = cell_lines(terminal, cells, 0, false);
    Line title(terminal);
    title.add(title_of(options, *map), Ink::title).add(", at most " + weight_text(cells.largest()), Ink::dim);
    block.insert(block.begin(), title.text());
    blocks.push_back(std::move(block));
  }
  return blocks;
}

void print_entropies(const Terminal& terminal, const TranslationReport& report) {
  Line title(terminal);
  title.add("How spread each head is", Ink::title).add("  (entropy in nats, mean over rows)", Ink::dim);
  std::cout << '\n' << title.text() << '\n';
  for (const TranslationMap& map : report.maps) {
    Line line(terminal);
    line.cell("  " + map.name(), 14);
    for (const float entropy : map.entropy) {
      char number[16];
      std::snprintf(number, sizeof number, "%6.2f", static_cast<double>(entropy));
      line.add(number);
    }
    std::cout << line.text() << '\n';
  }
}

void print(const Look& options, const TranslationReport& report) {
  const Terminal terminal = Terminal::detect(STDOUT_FILENO);
  const std::vector<std::vector<std::string>> blocks = maps_of(options, terminal, report);
  print_wrapped(std::cout, terminal, report.source_text, 0, Ink::bold);
  print_wrapped(std::cout, terminal, (terminal.unicode ? "→ " : "-> ") + report.text, 0, Ink::title);
  if (report.maps.empty()) {
    std::cout << (report.written.empty() ? "Nothing was written.\n" : "This model has no attention.\n");
    return;
  }
  std::cout << terminal.ink(
                   "rows: the token that is written (encoder: that looks); columns: what it looks at",
                   Ink::dim)
            << "\n\n";
  for (const std::string& line : side_by_side(terminal, blocks)) std::cout << line << '\n';
  print_entropies(terminal, report);
  print_caution(std::cout, terminal);
}

}  // namespace

void look_at_translator(const Look& options, const std::string& text) {
  refuse_others(options);
  const model::LoadedTranslator loaded = model::load_translator(options.model);
  model::TranslateOptions translate;
  translate.beam = kBeam;
  const TranslationReport report = lens::look_at_translation(loaded, text, translate);
  if (options.json) {
    std::cout << lens::to_json(report).dump() << '\n';
  } else {
    print(options, report);
  }
  std::cout.flush();
  if (!options.npz.empty()) {
    lens::write_npz(options.npz, report);
    std::cerr << options.npz << ": the weights and entropies of all heads\n";
  }
  if (options.png.empty()) return;
  const TranslationMap* cross = shown(options, report, "cross");
  if (cross == nullptr) throw std::invalid_argument("--png: there is no cross-attention to draw");
  const Cells cells = cells_of(options, report, *cross);
  write_cells_png(options.png, cells.values, static_cast<int64_t>(cells.rows.size()),
                  static_cast<int64_t>(cells.columns.size()));
  std::cerr << options.png << ": " << title_of(options, *cross) << ", rows the translation's tokens\n";
}

}  // namespace regard::cli

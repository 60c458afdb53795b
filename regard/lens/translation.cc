#include "regard/lens/translation.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <stdexcept>

#include "regard/autograd/attention.h"
#include "regard/io/npz.h"

namespace regard::lens {
namespace {

constexpr std::array<std::string_view, 3> kKinds = {"encoder", "decoder", "cross"};

// Keeps the weights of every call of one text.
class MapRecorder final : public layer::Recorder {
 public:
  bool wants(int64_t /*layer*/) const override { return true; }
  void record(const layer::AttentionCall& call) override {
    autograd::AttentionExtras extras;
    extras.key_lengths = call.key_lengths;
    std::vector<at::Tensor> heads;
    for (int64_t head = 0; head < call.q.size(1); ++head) {
      heads.push_back(autograd::weights(*call.spec, call.q, call.k, call.lse, 0, head, 0, call.q.size(2), 0,
                                        call.k.size(2), extras));
    }
    maps[call.layer] = at::stack(heads);
  }
  std::map<int64_t, at::Tensor> maps;
};

std::vector<float> entropies(const at::Tensor& weights) {
  const at::Tensor rows = -(weights * weights.clamp_min(1e-30).log()).sum(-1);
  const at::Tensor mean = rows.mean(-1).clamp_min(0).contiguous();  // rounding may lead below 0
  const auto* data = mean.const_data_ptr<float>();
  return {data, data + mean.numel()};
}

TranslationMap made(const std::string& name, const at::Tensor& weights) {
  const size_t space = name.find(' ');
  return {name.substr(0, space), std::stoll(name.substr(space + 1)), weights, entropies(weights)};
}

std::vector<std::string> pieces_of(const text::Tokenizer& tokenizer, const std::vector<int64_t>& ids) {
  std::vector<std::string> pieces;
  for (const int64_t id : ids) pieces.push_back(tokenizer.display_piece(static_cast<text::TokenId>(id)));
  return pieces;
}

nlohmann::json nested(const at::Tensor& weights) {
  if (weights.dim() == 1) {
    const at::Tensor row = weights.contiguous();
    const auto* data = row.const_data_ptr<float>();
    return std::vector<float>(data, data + row.numel());
  }
  nlohmann::json all = nlohmann::json::array();
  for (int64_t i = 0; i < weights.size(0); ++i) all.push_back(nested(weights.select(0, i)));
  return all;
}

}  // namespace

const TranslationMap* TranslationReport::find(std::string_view kind, int64_t layer) const {
  for (const TranslationMap& map : maps)
    if (map.kind == kind && map.layer == layer) return &map;
  return nullptr;
}

int64_t TranslationReport::layers(std::string_view kind) const {
  return std::count_if(maps.begin(), maps.end(), [&](const TranslationMap& map) { return map.kind == kind; });
}

TranslationReport look_at_translation(const model::LoadedTranslator& loaded, std::string_view text,
                                      const model::TranslateOptions& options) {
  const at::NoGradGuard no_grad;
  model::TranslateOptions asked = options;
  asked.bos = loaded.bos;
  asked.eos = loaded.eos;
  asked.pad = loaded.pad;
  const std::vector<std::string> names = loaded.model->attention_names();
  asked.weights = names.empty();
  const std::vector<int64_t> source = model::source_ids(*loaded.tokenizer, text, loaded.eos);

  TranslationReport report;
  report.source_text = text;
  report.translation = model::translate(*loaded.model, {source}, asked).front();
  const std::vector<int64_t>& ids = report.translation.ids;
  std::vector<int64_t> read = {loaded.bos};
  if (!ids.empty()) read.insert(read.end(), ids.begin(), ids.end() - 1);
  report.text = loaded.tokenizer->decode(std::vector<text::TokenId>(ids.begin(), ids.end()));
  report.source = pieces_of(*loaded.tokenizer, source);
  report.read = pieces_of(*loaded.tokenizer, read);
  report.written = pieces_of(*loaded.tokenizer, ids);
  if (ids.empty()) return report;
  if (names.empty()) {
    if (report.translation.weights.defined())
      report.maps.push_back(made("cross 0", report.translation.weights.transpose(0, 1)));
    return report;
  }
  MapRecorder recorder;
  layer::Context context;
  context.recorder = &recorder;
  loaded.model->hidden(model::pad_sources({source}, loaded.pad), at::tensor(read, at::kLong).unsqueeze(0),
                       context);
  for (size_t i = 0; i < names.size(); ++i)
    report.maps.push_back(made(names[i], recorder.maps.at(static_cast<int64_t>(i))));
  return report;
}

nlohmann::json to_json(const TranslationReport& report) {
  nlohmann::json json = {{"source", report.source_text},
                         {"translation", report.text},
                         {"source_pieces", report.source},
                         {"read_pieces", report.read},
                         {"pieces", report.written},
                         {"ids", report.translation.ids},
                         {"finished", report.translation.finished},
                         {"log_probability", report.translation.log_probability},
                         {"score", report.translation.score},
                         {"attention", nlohmann::json::array()}};
  for (const TranslationMap& map : report.maps) {
    json["attention"].push_back({{"kind", map.kind},
                                 {"layer", map.layer},
                                 {"entropy", map.entropy},
                                 {"weights", nested(map.weights)}});
  }
  return json;
}

void write_npz(const std::filesystem::path& npz, const TranslationReport& report) {
  if (report.maps.empty()) throw std::invalid_argument("nothing attended: there are no weights to write");
  std::vector<at::Tensor> weights;  // of each kind, alive until they are written
  std::vector<std::vector<float>> entropies(kKinds.size());
  std::vector<io::Tensor> arrays;
  for (size_t i = 0; i < kKinds.size(); ++i) {
    std::vector<at::Tensor> layers;
    for (const TranslationMap& map : report.maps) {
      if (map.kind != kKinds[i]) continue;
      layers.push_back(map.weights);
      entropies[i].insert(entropies[i].end(), map.entropy.begin(), map.entropy.end());
    }
    if (layers.empty()) continue;
    const at::Tensor& all = weights.emplace_back(at::stack(layers));
    const std::span values(all.const_data_ptr<float>(), static_cast<size_t>(all.numel()));
    const std::string kind(kKinds[i]);
    arrays.push_back(io::view(kind, all.sizes().vec(), values));
    arrays.push_back(io::view(kind + "_entropy", {all.size(0), all.size(1)}, entropies[i]));
  }
  const std::vector<int64_t>& ids = report.translation.ids;
  arrays.push_back(io::view("ids", {static_cast<int64_t>(ids.size())}, ids));
  io::write_npz(npz, arrays);
}

int64_t cross_layers(const model::Translator& model) {
  const std::vector<std::string> names = model.attention_names();
  if (names.empty()) return model.cross_heads() > 0 ? 1 : 0;
  return std::count_if(names.begin(), names.end(),
                       [](const std::string& name) { return name.starts_with("cross"); });
}

Alignment align(const at::Tensor& weights, int64_t layers, std::optional<int64_t> layer,
                std::optional<int64_t> head) {
  const int64_t heads = layers > 0 ? weights.size(1) / layers : 0;
  const int64_t chosen = layer.value_or(std::max<int64_t>(layers - 2, 0));
  if (chosen < 0 || chosen >= layers) {
    throw std::invalid_argument("align: layer " + std::to_string(chosen) + " is asked for; there are " +
                                std::to_string(layers) + " of cross-attention");
  }
  if (head && (*head < 0 || *head >= heads)) {
    throw std::invalid_argument("align: head " + std::to_string(*head) +
                                " is asked for; heads are numbered 0 to " + std::to_string(heads - 1));
  }
  const at::Tensor of_layer = weights.narrow(1, chosen * heads, heads);
  Alignment alignment;
  alignment.layer = "cross " + std::to_string(chosen);
  alignment.head = head;
  alignment.soft = (head ? of_layer.select(1, *head) : of_layer.mean(1)).contiguous();
  const auto* row = alignment.soft.const_data_ptr<float>();
  const int64_t keys = alignment.soft.size(1);
  for (int64_t t = 0; t < alignment.soft.size(0); ++t, row += keys)
    alignment.hard.push_back(std::max_element(row, row + keys) - row);
  return alignment;
}

}  // namespace regard::lens

#include "regard/lens/form.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "regard/autograd/structured.h"
#include "regard/layer/score.h"
#include "regard/layer/structured.h"

namespace regard::lens {
namespace {

constexpr int64_t kMostTokens = 4096;

const std::vector<std::string>& form_names() {
  static const std::vector<std::string> kNames = {"block",  "nystrom",  "linformer", "lsh",
                                                  "linear", "additive", "cosine"};
  return kNames;
}

bool can_be_causal(const std::string& name) {
  return name != "nystrom" && name != "linformer";
}

int64_t default_size(const std::string& name, int64_t tokens) {
  const auto root = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(tokens))));
  if (name == "block") return std::max<int64_t>(root, 1);
  if (name == "nystrom") return std::clamp<int64_t>(tokens / 4, 1, 64);
  if (name == "linformer") return std::clamp<int64_t>(tokens / 4, 1, 256);
  if (name == "lsh") return std::max<int64_t>(tokens / 64 * 2, 2);
  return 0;
}

std::string describe(const FormChoice& c, int64_t tokens) {
  const std::string size = std::to_string(c.size);
  if (c.name == "block")
    return "block attention: the own " + size + " tokens as they are, " +
           std::to_string((tokens + c.size - 1) / c.size - 1) + " other blocks as one mean each";
  if (c.name == "nystrom") return "Nystrom attention with " + size + " landmarks, 6 iterations";
  if (c.name == "linformer") return "Linformer with " + size + " random mixtures of keys";
  if (c.name == "lsh") return "hashed attention with " + size + " buckets, 4 rounds, q for both sides";
  if (c.name == "linear") return "linear attention with elu(x) + 1";
  if (c.name == "additive") return "additive attention, hidden units q + k weighed alike";
  return "cosine attention, temperature 0.1";
}

// One head as [1, 1, tokens, size].
at::Tensor rows_of(const RecordedLayer& layer, int64_t head, int64_t size,
                   std::vector<float> (RecordedLayer::*row)(int64_t, int64_t) const) {
  at::Tensor rows = at::empty({1, 1, layer.tokens, size}, at::kFloat);
  for (int64_t i = 0; i < layer.tokens; ++i) {
    const std::vector<float> values = (layer.*row)(head, i);
    std::copy(values.begin(), values.end(), rows.mutable_data_ptr<float>() + i * size);
  }
  return rows;
}

at::Tensor linear_map(const at::Tensor& q, const at::Tensor& k, bool causal) {
  const auto feature = [](const at::Tensor& x) { return at::elu(x) + 1; };
  at::Tensor products = at::matmul(feature(q), feature(k).transpose(-1, -2));
  if (causal) products = products.tril();
  return products / products.sum(-1, true);
}

// The form's map of one head, [tokens, tokens].
at::Tensor map_of(const FormChoice& c, const RecordedLayer& layer, const at::Tensor& q, const at::Tensor& k,
                  bool causal) {
  using attention::Align;
  using attention::Mask;
  const int64_t tokens = layer.tokens;
  const at::Tensor eye = at::eye(tokens, at::kFloat).view({1, 1, tokens, tokens});
  const Mask mask = causal ? Mask::causal(Align::top_left) : Mask();
  const double scale = static_cast<double>(layer.scale());
  const double standard = 1 / std::sqrt(static_cast<double>(layer.key_size));
  at::Tensor map;
  if (c.name == "block") {
    map = autograd::block_attention({c.size, causal, scale}, q, k, eye);
  } else if (c.name == "nystrom") {
    map = layer::nystrom_attention({.landmarks = std::min(c.size, tokens)}, q * (scale / standard), k, eye);
  } else if (c.name == "linformer") {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(1);
    layer::Linformer linformer(tokens, c.size, true);
    const at::NoGradGuard no_grad;
    linformer.parameters()[0].normal_(0, 1 / std::sqrt(static_cast<double>(c.size)), generator);
    map = linformer.forward(q * (scale / standard), k, eye);
  } else if (c.name == "lsh") {
    const double norm =
        k.norm(2, {-1}, true).mean().item<double>();  // the keys' size, which sharing takes away
    map = autograd::lsh_attention({c.size, 4, 64, causal, 1, scale * norm}, q, eye);
  } else if (c.name == "linear") {
    map = linear_map(q, k, causal);
  } else if (c.name == "additive") {
    map = autograd::additive_attention(mask, q, k, eye, at::full({1, q.size(-1)}, standard, at::kFloat));
  } else {
    map = layer::Score({layer::ScoreKind::cosine, 1, q.size(-1)}).forward(q, k, eye, mask);
  }
  return map.view({tokens, tokens});
}

double norm_ratio(const at::Tensor& difference, const at::Tensor& whole) {
  return difference.norm().item<double>() / std::max(whole.norm().item<double>(), 1e-30);
}

}  // namespace

FormChoice form_choice(const std::string& text) {
  FormChoice choice;
  const size_t at = text.find('=');
  choice.name = text.substr(0, at);
  const std::vector<std::string>& names = form_names();
  if (std::find(names.begin(), names.end(), choice.name) == names.end()) {
    std::string allowed;
    for (const std::string& name : names) allowed += (allowed.empty() ? "" : ", ") + name;
    throw std::invalid_argument("there is no form of attention called '" + choice.name + "'; there are " +
                                allowed);
  }
  if (at == std::string::npos) return choice;
  const std::string number = text.substr(at + 1);
  if (default_size(choice.name, kMostTokens) == 0)
    throw std::invalid_argument(choice.name + " takes no number");
  if (number.empty() || number.size() > 9 || number.find_first_not_of("0123456789") != std::string::npos ||
      std::stoll(number) < 1 ||
      (choice.name == "lsh" && std::stoll(number) > 1 && std::stoll(number) % 2 != 0)) {
    throw std::invalid_argument("the number of " + choice.name + " is '" + number + "'; it must be " +
                                (choice.name == "lsh" ? "1 or even" : "1 or more"));
  }
  choice.size = std::stoll(number);
  return choice;
}

FormReport compare_form(const Recording& recording, const FormChoice& choice, int64_t layer, int64_t head,
                        int64_t row) {
  const at::NoGradGuard no_grad;
  const int64_t tokens = recording.size();
  if (tokens > kMostTokens) {
    throw std::invalid_argument("the text has " + std::to_string(tokens) +
                                " tokens; whole maps are compared up to " + std::to_string(kMostTokens));
  }
  if (recording.causal && !can_be_causal(choice.name)) {
    throw std::invalid_argument(choice.name +
                                " cannot be causal, and this attention is: each token would see the future");
  }
  FormChoice c = choice;
  if (c.size == 0) c.size = default_size(c.name, tokens);
  FormReport report;
  report.name = c.name;
  report.description = describe(c, tokens);
  report.layer = layer;
  report.head = head;
  report.row = row;
  for (const RecordedLayer& recorded : recording.layers) {
    if (recorded.window() > 0 || recorded.dense_mask) {
      throw std::invalid_argument(
          "layer " + std::to_string(recorded.layer) +
          " has a window or a mask of its own; forms are compared where a row sees everything, or "
          "everything before it");
    }
    for (int64_t h = 0; h < recorded.heads; ++h) {
      const at::Tensor q = rows_of(recorded, h, recorded.key_size, &RecordedLayer::query);
      const at::Tensor k = rows_of(recorded, h, recorded.key_size, &RecordedLayer::key);
      const at::Tensor map = map_of(c, recorded, q, k, recording.causal);
      std::vector<float> weights = recorded.weights(h, 0, tokens, 0, tokens);
      const at::Tensor exact = at::from_blob(weights.data(), {tokens, tokens}, at::kFloat);
      FormHead result{recorded.layer, h, 0, 0, 0, NAN};
      result.weight_error = static_cast<float>(norm_ratio(map - exact, exact));
      result.moved = static_cast<float>((map - exact).abs().sum(-1).mean().item<double>() / 2);
      result.same_top =
          static_cast<float>(map.argmax(-1).eq(exact.argmax(-1)).to(at::kFloat).mean().item<double>());
      if (recorded.value_size > 0) {
        const at::Tensor v =
            rows_of(recorded, h, recorded.value_size, &RecordedLayer::value).view({tokens, -1});
        result.output_error =
            static_cast<float>(norm_ratio(at::matmul(map - exact, v), at::matmul(exact, v)));
      }
      report.heads.push_back(result);
      if (recorded.layer != layer || h != head) continue;
      const auto row_of = [&](const at::Tensor& from) {
        const at::Tensor values = from.select(0, row).contiguous();
        return std::vector<float>(values.const_data_ptr<float>(), values.const_data_ptr<float>() + tokens);
      };
      report.softmax = row_of(exact);
      report.form = row_of(map);
    }
  }
  return report;
}

nlohmann::json to_json(const FormReport& report) {
  nlohmann::json heads = nlohmann::json::array();
  for (const FormHead& head : report.heads) {
    nlohmann::json entry = {{"layer", head.layer},
                            {"head", head.head},
                            {"weight_error", head.weight_error},
                            {"moved", head.moved},
                            {"same_top", head.same_top}};
    if (!std::isnan(head.output_error)) entry["output_error"] = head.output_error;
    heads.push_back(entry);
  }
  return {{"form", report.name},
          {"description", report.description},
          {"heads", heads},
          {"row",
           {{"layer", report.layer},
            {"head", report.head},
            {"position", report.row},
            {"softmax", report.softmax},
            {"form", report.form}}}};
}

}  // namespace regard::lens

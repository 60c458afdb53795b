#include "tests/attention/golden_case.h"

namespace regard::testing {
namespace {

using attention::Align;
using attention::Mask;
using kernel::View;

const std::string kFolder = std::string(REGARD_GOLDEN_DIR) + "/attention/";

const nlohmann::json& all_cases() {
  static const nlohmann::json cases = nlohmann::json::parse(std::ifstream(kFolder + "cases.json"));
  return cases;
}

nlohmann::json find(const std::string& name) {
  for (const auto& entry : all_cases()) {
    if (entry["name"] == name) return entry;
  }
  throw std::runtime_error("no case " + name);
}

}  // namespace

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const auto& entry : all_cases()) names.push_back(entry["name"]);
  return names;
}

kernel::Extents four_axes(const std::vector<int64_t>& shape) {
  kernel::Extents size{1, 1, 1, 1};
  std::copy(shape.rbegin(), shape.rend(), size.rbegin());
  return size;
}

GoldenCase::GoldenCase(const std::string& name)
    : entry(find(name)), file(kFolder + entry["file"].get<std::string>()) {
  q = file["q"].to<float>();
  k = file["k"].to<float>();
  v = file["v"].to<float>();
  operands.q = View<const float>(q.data(), four_axes(file["q"].shape));
  operands.k = View<const float>(k.data(), four_axes(file["k"].shape));
  operands.v = View<const float>(v.data(), four_axes(file["v"].shape));
  spec.scale = entry["scale"].get<double>();
  spec.softcap = entry["softcap"];
  const int64_t heads = operands.q.size[1];
  if (file.has("bias")) {
    bias = file["bias"].to<float>();
    operands.bias = {bias.data(), four_axes(file["bias"].shape)};
  }
  if (file.has("sink")) {
    sinks = file["sink"].to<float>();
    operands.sinks = {sinks.data(), {1, heads, 1, 1}};
  }
  if (file.has("alibi_slopes")) {
    slopes = file["alibi_slopes"].to<float>();
    operands.slopes = {slopes.data(), {1, heads, 1, 1}};
  }
  read_mask({operands.q.size[0], heads, operands.q.size[2], operands.k.size[2]});
}

void GoldenCase::read_mask(const kernel::Extents& square) {
  const Align align = entry["align"] == "bottom_right" ? Align::bottom_right : Align::top_left;
  spec.alibi_align = align;
  if (entry["causal"]) spec.mask = spec.mask & Mask::causal(align);
  spec.mask = spec.mask & Mask::window(entry["window"][0], entry["window"][1], align);
  if (file.has("kv_len")) {
    lengths = file["kv_len"].to<int64_t>();
    operands.key_lengths = {lengths.data(), {square[0], 1, 1, 1}};
    spec.mask = spec.mask & Mask::key_lengths();
  }
  if (file.has("mask")) {
    mask = file["mask"].to<uint8_t>();
    operands.dense_mask = {mask.data(), four_axes(file["mask"].shape)};
    spec.mask = spec.mask & Mask::dense();
  }
  if (file.has("q_segment")) {
    query_segments = file["q_segment"].to<int32_t>();
    key_segments = file["k_segment"].to<int32_t>();
    operands.query_segments = {query_segments.data(), {square[0], 1, 1, square[2]}};
    operands.key_segments = {key_segments.data(), {square[0], 1, 1, square[3]}};
    spec.mask = spec.mask & Mask::segments();
  }
}

}  // namespace regard::testing

#include "regard/web/payload.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>

#include "regard/io/tensor.h"

namespace regard::web {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "the page's arrays are little-endian");

std::string floats(std::span<const float> values) {
  return base64(std::as_bytes(values));
}

std::string halves(std::span<const float> values) {
  std::vector<uint16_t> out(values.size());
  std::transform(values.begin(), values.end(), out.begin(), io::float_to_half);
  return base64(std::as_bytes(std::span<const uint16_t>(out)));
}

std::size_t base64_size(std::size_t bytes) {
  return (bytes + 2) / 3 * 4;
}

Json number(float value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

// What parts a token from the one before it: 0 nothing, 1 a space, 2 a new line. White space that is a token
// of its own ends the line that it stands on.
int gap_before(const lens::Report& report, size_t i) {
  const lens::Token& token = report.tokens[i];
  const std::string& text = report.text;
  if (text.empty() || token.special || i == 0) return 1;
  const auto size = static_cast<int64_t>(text.size());
  const auto blank = [&](const lens::Token& other) {
    int64_t at = other.begin;
    while (at < std::min(size, other.end) && is_space(text[static_cast<size_t>(at)])) ++at;
    return at > other.begin && at >= other.end;
  };
  const lens::Token& before = report.tokens[i - 1];
  const int64_t from = before.special ? token.begin : blank(before) ? before.begin : before.end;
  const int64_t to = std::min(size, blank(token) ? token.begin : token.end);
  int gap = 0;
  for (int64_t at = std::clamp<int64_t>(from, 0, size); at < to; ++at) {
    const char c = text[static_cast<size_t>(at)];
    if (!is_space(c)) break;
    gap = std::max(gap, c == '\n' ? 2 : 1);
  }
  return gap;
}

Json tokens_of(const lens::Report& report) {
  Json out = Json::array();
  for (size_t i = 0; i < report.tokens.size(); ++i) {
    const lens::Token& token = report.tokens[i];
    out.push_back({token.text,
                   (token.special ? 1 : 0) + (token.punctuation ? 2 : 0) + (token.unknown ? 4 : 0),
                   gap_before(report, i)});
  }
  return out;
}

Json units_of(const std::vector<lens::Unit>& units) {
  Json out = Json::array();
  for (const lens::Unit& unit : units) {
    out.push_back({unit.text, (unit.special ? 1 : 0) + (unit.punctuation ? 2 : 0), unit.first, unit.count});
  }
  return out;
}

Json focus_of(const lens::Report& report) {
  const lens::Focus& focus = report.focus;
  const auto first_token = [&](int64_t unit) {
    return unit < 0 ? int64_t{-1} : report.units[static_cast<size_t>(unit)].first;
  };
  Json heads = Json::array();
  for (const lens::FocusHead& head : focus.heads) {
    if (head.top_unit < 0) continue;
    heads.push_back({{"layer", head.layer},
                     {"head", head.head},
                     {"token", first_token(head.top_unit)},
                     {"weight", number(head.top_weight)}});
  }
  return {{"token", first_token(focus.unit)}, {"reason", focus.chosen_by_user ? "" : focus.reason},
          {"on", first_token(focus.on_unit)}, {"words", report.words},
          {"heads", std::move(heads)},        {"mean", focus.mean_weights},
          {"rollout", focus.rollout}};
}

Json grid_of(const lens::Report& report) {
  Json out = Json::array();
  for (const lens::HeadReport& head : report.grid) {
    out.push_back({{"layer", head.layer},
                   {"head", head.head},
                   {"label", lens::name(head.label)},
                   {"score", number(head.label_score)},
                   {"entropy", number(head.entropy)},
                   {"share", number(head.entropy_share)}});
  }
  return out;
}

Json text_of(const lens::Report& report) {
  return {{"model", report.model},
          {"architecture", report.architecture},
          {"text", report.text.size() > 200 ? report.text.substr(0, 200) : report.text},
          {"layers", report.layers},
          {"heads", report.heads},
          {"kvHeads", report.kv_heads},
          {"causal", report.causal},
          {"window", report.window},
          {"masked", false},
          {"approximate", report.approximate},
          {"weak", report.weak},
          {"specialHidden", report.special_hidden},
          {"cut", report.tokens_before_cut},
          {"warnings", report.warnings},
          {"command", report.command},
          {"tokens", tokens_of(report)},
          {"words", units_of(report.word_units)},
          {"grid", grid_of(report)},
          {"focus", focus_of(report)},
          {"type", "f32"},
          {"carried", Json::array()}};
}

// One data block a layer: for each head mean, then max, in 16 bits. Coarser blocks where they take too much.
void add_blocks(const lens::Report& report, int index, std::size_t room, Payload& out) {
  const auto heads = report.grid.size();
  const auto length = static_cast<int64_t>(report.tokens.size());
  int halvings = 0;
  int64_t tokens = report.block_tokens;
  int64_t count = report.blocks;
  while (base64_size(heads * static_cast<std::size_t>(count * count) * 4) > room && count > 4) {
    ++halvings;
    tokens *= 2;
    count = (length + tokens - 1) / tokens;
  }
  out.text["blocks"] = count;
  out.text["blockTokens"] = tokens;
  std::vector<float> layer;
  for (size_t i = 0; i < heads; ++i) {
    BlockMaps maps = block_maps(report, report.grid[i]);
    for (int h = 0; h < halvings; ++h) maps = coarser(maps, length);
    layer.insert(layer.end(), maps.mean.begin(), maps.mean.end());
    layer.insert(layer.end(), maps.max.begin(), maps.max.end());
    if (i + 1 == heads || report.grid[i + 1].layer != report.grid[i].layer) {
      out.blocks += data_block("b-" + std::to_string(index) + "-" + std::to_string(report.grid[i].layer),
                               "text/plain", halves(layer));
      layer.clear();
    }
  }
}

// A dense mask, one bit a pair. False where it does not fit.
bool add_mask(const lens::Report& report, int index, std::size_t room, Payload& out) {
  if (report.dense_mask.empty()) return true;
  std::vector<std::byte> bits((report.dense_mask.size() + 7) / 8);
  if (base64_size(bits.size()) > room) return false;
  for (size_t i = 0; i < report.dense_mask.size(); ++i) {
    if (report.dense_mask[i] != 0) bits[i / 8] |= std::byte{1} << (i % 8);
  }
  out.text["masked"] = true;
  out.blocks += data_block("m-" + std::to_string(index), "text/plain", base64(bits));
  return true;
}

void add_heads(const lens::Report& report, int index, std::size_t room, Payload& out) {
  const std::string number = std::to_string(index);
  const auto cost = [&](const lens::CarriedHead& head, bool with_keys, std::size_t width) {
    const std::size_t keys =
        with_keys ? report.carried_keys[static_cast<size_t>(head.keys)].k.size() * width : 0;
    return base64_size(head.q.size() * width) + base64_size(head.lse.size() * 4) + base64_size(keys) + 300;
  };
  if (report.carried.empty()) return;
  // Exact where one head fits exactly: fewer exact heads are worth more than many rounded ones.
  const bool exact = cost(report.carried.front(), true, 4) <= room;
  const std::size_t width = exact ? 4 : 2;
  const auto array = [&](std::span<const float> values) { return exact ? floats(values) : halves(values); };
  std::vector<bool> keys_there(report.carried_keys.size());
  for (const lens::CarriedHead& head : report.carried) {
    const auto keys = static_cast<size_t>(head.keys);
    const std::size_t bytes = cost(head, !keys_there[keys], width);
    if (bytes > room) continue;
    room -= bytes;
    if (!keys_there[keys]) {
      keys_there[keys] = true;
      out.blocks += data_block("k-" + number + "-" + std::to_string(keys), "text/plain",
                               array(report.carried_keys[keys].k));
    }
    const std::string name = number + "-" + std::to_string(head.layer) + "." + std::to_string(head.head);
    out.blocks += data_block("q-" + name, "text/plain", array(head.q));
    out.blocks += data_block("l-" + name, "text/plain", floats(head.lse));
    out.text["carried"].push_back({{"layer", head.layer},
                                   {"head", head.head},
                                   {"keys", head.keys},
                                   {"size", head.head_size},
                                   {"scale", head.scale}});
  }
  out.text["type"] = exact ? "f32" : "f16";
}

}  // namespace

std::string base64(std::span<const std::byte> bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve(base64_size(bytes.size()));
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t left = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t b = 0; b < 3; ++b)
      group = group << 8 | (b < left ? std::to_integer<uint32_t>(bytes[i + b]) : 0);
    for (size_t d = 0; d < 4; ++d) out += d <= left ? kDigits[group >> (18 - 6 * d) & 63] : '=';
  }
  return out;
}

std::string data_block(std::string_view id, std::string_view type, std::string_view content) {
  std::string out = "<script type=\"";
  out.append(type).append("\" id=\"").append(id).append("\">").append(content).append("</script>\n");
  return out;
}

std::string script_json(const Json& value) {
  const std::string plain = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string out;
  out.reserve(plain.size() + 64);
  for (const char c : plain) {
    if (c == '<') {
      out += "\\u003c";  // only strings can hold it
    } else {
      out += c;
    }
  }
  return out;
}

BlockMaps block_maps(const lens::Report& report, const lens::HeadReport& head) {
  const auto size = static_cast<size_t>(report.blocks * report.blocks);
  if (head.block_mean.size() != size || head.block_max.size() != size) {
    throw std::invalid_argument("the block maps of layer " + std::to_string(head.layer) + " head " +
                                std::to_string(head.head) + " have " +
                                std::to_string(head.block_mean.size()) + " cells; the report has " +
                                std::to_string(report.blocks) + " blocks a side");
  }
  return {report.block_tokens, report.blocks, head.block_mean, head.block_max};
}

BlockMaps coarser(const BlockMaps& maps, int64_t length) {
  BlockMaps out;
  out.tokens = maps.tokens * 2;
  out.count = (length + out.tokens - 1) / out.tokens;
  const auto cells = static_cast<size_t>(out.count * out.count);
  out.mean.assign(cells, 0.0F);
  out.max.assign(cells, 0.0F);
  const auto extent = [&](int64_t block, int64_t tokens) {
    return std::min(tokens, length - block * tokens);
  };
  for (int64_t r = 0; r < maps.count; ++r) {
    for (int64_t c = 0; c < maps.count; ++c) {
      const auto from = static_cast<size_t>(r * maps.count + c);
      const auto to = static_cast<size_t>(r / 2 * out.count + c / 2);
      const auto share = static_cast<double>(extent(r, maps.tokens) * extent(c, maps.tokens)) /
                         static_cast<double>(extent(r / 2, out.tokens) * extent(c / 2, out.tokens));
      out.mean[to] += static_cast<float>(share * maps.mean[from]);
      out.max[to] = std::max(out.max[to], maps.max[from]);
    }
  }
  return out;
}

Payload payload(const lens::Report& report, int index, std::size_t room) {
  Payload out;
  out.text = text_of(report);
  std::size_t fixed = script_json(out.text).size();
  if (fixed > room / 2) {
    // So many tokens that words are left out.
    out.text["words"] = Json::array();
    out.text["focus"]["mean"] = Json::array();
    out.text["focus"]["rollout"] = Json::array();
    fixed = script_json(out.text).size();
  }
  const std::size_t margin = 2000 + 100 * report.grid.size() + 200 * report.carried.size();
  if (fixed + margin > room) {
    throw std::invalid_argument(
        "a text of " + std::to_string(report.tokens.size()) +
        " tokens does not fit in a page of 25 MB; --json and --npz have no such limit");
  }
  room -= fixed + margin;
  add_blocks(report, index, room / 2, out);
  if (out.blocks.size() > room) {
    throw std::invalid_argument("the maps of " + std::to_string(report.grid.size()) +
                                " heads do not fit in a page of 25 MB; choose fewer with --layer");
  }
  room -= out.blocks.size();
  const std::size_t before = out.blocks.size();
  if (!add_mask(report, index, room / 2, out)) return out;  // no exact weights without the mask
  room -= out.blocks.size() - before;
  add_heads(report, index, room, out);
  return out;
}

}  // namespace regard::web

// What the page carries, as the text of <script> data blocks (page/data.js reads them).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/lens/report.h"

namespace regard::web {

std::string base64(std::span<const std::byte> bytes);

// One data block. The content must hold no '<'.
std::string data_block(std::string_view id, std::string_view type, std::string_view content);

// JSON that may stand inside a <script> element: '<' is written as an escape, bytes that are no UTF-8 are
// replaced.
std::string script_json(const nlohmann::json& value);

// Mean and largest weight of the blocks of one head, [count, count], each of `tokens` tokens a side.
struct BlockMaps {
  int64_t tokens = 1;
  int64_t count = 0;
  std::vector<float> mean;
  std::vector<float> max;
};
BlockMaps block_maps(const lens::Report& report, const lens::HeadReport& head);
// The same in blocks of twice the side. `length` is the number of tokens: the last block may be smaller.
BlockMaps coarser(const BlockMaps& maps, int64_t length);

struct Payload {
  nlohmann::json text;  // an entry of "texts"
  std::string blocks;   // data blocks with arrays
};

// The text with number `index` (0 or 1) within so many bytes. Throws std::invalid_argument where its tokens
// and smallest block maps do not fit.
Payload payload(const lens::Report& report, int index, std::size_t room);

}  // namespace regard::web

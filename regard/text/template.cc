#include "regard/text/template.h"

#include <algorithm>

namespace regard::text {
namespace {

void cut(Encoding& encoding, size_t size) {
  if (encoding.size() <= size) return;
  encoding.ids.resize(size);
  encoding.pieces.resize(size);
  encoding.offsets.resize(size);
  encoding.special.resize(size);
  encoding.continues.resize(size);
  encoding.type_ids.resize(size);
  encoding.text_index.resize(size);
}

void append(Encoding& out, const Encoding& part, uint8_t type_id, uint8_t text_index) {
  const auto add = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  add(out.ids, part.ids);
  add(out.pieces, part.pieces);
  add(out.offsets, part.offsets);
  add(out.special, part.special);
  add(out.continues, part.continues);
  out.type_ids.resize(out.ids.size(), type_id);
  out.text_index.resize(out.ids.size(), text_index);
  out.unknown += part.unknown;
  out.dropped_bytes += part.dropped_bytes;
}

}  // namespace

size_t added_count(const std::vector<TemplateItem>& items) {
  return size_t(std::count_if(items.begin(), items.end(), [](const TemplateItem& item) {
    return item.kind == TemplateItem::Kind::special;
  }));
}

size_t truncate_longest_first(Encoding& first, Encoding* second, size_t limit) {
  const size_t before = first.size() + (second ? second->size() : 0);
  if (before <= limit) return 0;
  if (!second) {
    cut(first, limit);
    return before - limit;
  }
  // The shorter one keeps what fits beside half of the room; where both are longer, an odd one goes to the
  // second when the first is not the longer of the two.
  const bool first_is_longer = first.size() > second->size();
  Encoding& shorter = first_is_longer ? *second : first;
  Encoding& longer = first_is_longer ? first : *second;
  const size_t keep = std::min(shorter.size(), limit / 2);
  cut(shorter, keep);
  cut(longer, limit - keep);
  return before - limit;
}

Encoding assemble(const std::vector<TemplateItem>& items, const Encoding& first, const Encoding* second) {
  Encoding out;
  uint8_t current = 0;
  for (const TemplateItem& item : items) {
    switch (item.kind) {
      case TemplateItem::Kind::special:
        out.ids.push_back(item.id);
        out.pieces.push_back(item.piece);
        out.offsets.emplace_back();
        out.special.push_back(1);
        out.continues.push_back(0);
        out.type_ids.push_back(item.type_id);
        out.text_index.push_back(current);
        break;
      case TemplateItem::Kind::first:
        append(out, first, item.type_id, current = 0);
        break;
      case TemplateItem::Kind::second:
        if (second) append(out, *second, item.type_id, current = 1);
        break;
    }
  }
  return out;
}

}  // namespace regard::text

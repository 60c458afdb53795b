// Which special tokens stand around one text, or around two.
#pragma once

#include <string>
#include <vector>

#include "regard/text/encoding.h"

namespace regard::text {

struct TemplateItem {
  enum class Kind { special, first, second } kind = Kind::first;
  TokenId id = 0;     // of a special token
  std::string piece;  // of a special token
  uint8_t type_id = 0;
};

struct Template {
  std::vector<TemplateItem> single{{TemplateItem::Kind::first, 0, {}, 0}};
  std::vector<TemplateItem> pair{{TemplateItem::Kind::first, 0, {}, 0},
                                 {TemplateItem::Kind::second, 0, {}, 0}};
};

// The number of special tokens that the items add.
size_t added_count(const std::vector<TemplateItem>& items);

// Cuts the two (the second may be null) so that together they have at most `limit` tokens: the longer one is
// cut first. Returns how many tokens went.
size_t truncate_longest_first(Encoding& first, Encoding* second, size_t limit);

// Lays `first` and `second` (null for a single text) out as the items say.
Encoding assemble(const std::vector<TemplateItem>& items, const Encoding& first, const Encoding* second);

}  // namespace regard::text

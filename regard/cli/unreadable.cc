#include "regard/cli/unreadable.h"

#include <algorithm>
#include <iostream>

namespace regard::cli {

void Unreadable::count(const std::string& text) {
  text::EncodeOptions plain;
  plain.add_special = false;
  count(loaded_.tokenizer->encode(text, plain));
}

void Unreadable::count(const text::Encoding& encoding) {
  const auto unknown = static_cast<int64_t>(encoding.unknown);
  const auto own = static_cast<int64_t>(std::count(encoding.special.begin(), encoding.special.end(), 0));
  if (unknown == 0 || 4 * unknown < std::max(own, unknown)) return;
  ++texts_;
  unknown_ += unknown;
  tokens_ += std::max(own, unknown);
}

void Unreadable::warn() const {
  if (texts_ == 0) return;
  std::cerr << "regard: " << unknown_ << " of " << tokens_ << " tokens";
  if (texts_ > 1) std::cerr << " in " << texts_ << " of the texts";
  std::cerr << " are unknown to '" << loaded_.name << "'";
  if (loaded_.name != "e5") std::cerr << "; 'e5' reads about 100 languages, Chinese too: --model e5";
  std::cerr << '\n';
}

}  // namespace regard::cli

// A normalised text that remembers which bytes of the original each of its bytes comes from.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "regard/text/encoding.h"
#include "regard/text/utf8.h"

namespace regard::text {

class AlignedText {
 public:
  const std::string& text() const { return text_; }
  bool empty() const { return text_.empty(); }

  void append(char32_t code_point, Span source) {
    const size_t before = text_.size();
    append_utf8(code_point, text_);
    sources_.insert(sources_.end(), text_.size() - before, source);
  }

  // What the bytes [begin, end) come from: from the first one's source to the last one's. Empty for an empty
  // range.
  Span source(size_t begin, size_t end) const {
    if (begin >= end) {
      const size_t at = begin < sources_.size() ? sources_[begin].begin
                        : sources_.empty()      ? 0
                                                : sources_.back().end;
      return {at, at};
    }
    // Reordered marks may come from earlier bytes than their neighbours.
    return {sources_[begin].begin, std::max(sources_[begin].begin, sources_[end - 1].end)};
  }

 private:
  std::string text_;
  std::vector<Span> sources_;  // one a byte of text_
};

}  // namespace regard::text

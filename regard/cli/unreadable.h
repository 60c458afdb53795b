#pragma once

#include <cstdint>
#include <string>

#include "regard/model/model.h"

namespace regard::cli {

// Counts tokens that a model does not know, text by text, and says so when a text is a quarter made of them:
// what the model computes on it means little.
class Unreadable {
 public:
  explicit Unreadable(const model::Loaded& loaded) : loaded_(loaded) {}
  void count(const std::string& text);
  void count(const text::Encoding& encoding);
  // One sentence on standard error with the counts and a model that can read it; nothing when all is well.
  void warn() const;

 private:
  const model::Loaded& loaded_;
  int64_t texts_ = 0;  // of which a quarter is unknown
  int64_t unknown_ = 0;
  int64_t tokens_ = 0;
};

}  // namespace regard::cli

// Options that recipes write as words.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

namespace regard::train {

template <class Kind>
struct Name {
  const char* name;
  Kind kind;
};

// The kind of this name. Throws std::invalid_argument that says what `option` is and which names are known.
template <class Kind, size_t count>
Kind kind_named(const char* option, const std::string& name, const Name<Kind> (&names)[count]) {
  std::string known;
  for (const Name<Kind>& one : names) {
    if (name == one.name) return one.kind;
    known += std::string(known.empty() ? "" : ", ") + one.name;
  }
  throw std::invalid_argument(std::string(option) + " is \"" + name + "\"; known are " + known);
}

}  // namespace regard::train

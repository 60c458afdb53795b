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

// The kind of this name, among Names or what has their members. Throws std::invalid_argument that says what
// `option` is and which names are known.
template <class Named, size_t count>
auto kind_named(const char* option, const std::string& name, const Named (&names)[count]) {
  std::string known;
  for (const Named& one : names) {
    if (name == one.name) return one.kind;
    known += std::string(known.empty() ? "" : ", ") + one.name;
  }
  throw std::invalid_argument(std::string(option) + " is \"" + name + "\"; known are " + known);
}

}  // namespace regard::train

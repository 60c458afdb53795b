#include "regard/attention/spec.h"

#include <sstream>

namespace regard::attention {

std::string Spec::to_string() const {
  std::ostringstream text;
  text << "scale ";
  if (scale) {
    text << *scale;
  } else {
    text << "1/sqrt(Dk)";
  }
  if (softcap > 0) text << ", softcap " << softcap;
  if (dropout > 0) text << ", dropout " << dropout;
  if (row_invariant) text << ", row invariant";
  text << ", mask " << mask.to_string();
  return text.str();
}

}  // namespace regard::attention

#include "regard/cli/look_print.h"

#include <cmath>
#include <cstdio>

// Numbers, names and labels as every part of `look` writes them.
namespace regard::cli {

void print_wrapped(std::ostream& out, const Terminal& terminal, const std::string& text, int64_t indent,
                   Ink ink) {
  for (const std::string& line : wrap(terminal, text, terminal.width, indent, indent)) {
    out << terminal.ink(line, ink) << '\n';
  }
}

std::string count_text(int64_t number) {
  const std::string digits = std::to_string(number);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    const bool group = i > 0 && digits[i - 1] != '-' && (digits.size() - i) % 3 == 0;
    if (group) out.push_back(',');
    out.push_back(digits[i]);
  }
  return out;
}

std::string weight_text(float weight) {
  if (!std::isfinite(weight)) return "-";
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, weight >= 0.995F && weight < 0.9995F ? "%.3f" : "%.2f",
                static_cast<double>(weight));
  return buffer;
}

std::string head_name(int64_t layer, int64_t head) {
  // Appended piece by piece: GCC 12 warns falsely of an overflow in "L" + std::to_string(...).
  std::string name("L");
  name.append(std::to_string(layer)).append("H").append(std::to_string(head));
  return name;
}

const char* label_code(lens::Label label) {
  switch (label) {
    case lens::Label::previous:
      return "prev";
    case lens::Label::next:
      return "next";
    case lens::Label::self:
      return "self";
    case lens::Label::first:
      return "1st";
    case lens::Label::special:
      return "spec";
    case lens::Label::same_token:
      return "same";
    case lens::Label::induction:
      return "ind";
    case lens::Label::broad:
      return "even";
    case lens::Label::mixed:
      return "mix";
  }
  return "?";
}

Ink label_ink(lens::Label label) {
  switch (label) {
    case lens::Label::previous:
      return Ink::blue;
    case lens::Label::next:
      return Ink::sky;
    case lens::Label::self:
      return Ink::yellow;
    case lens::Label::first:
    case lens::Label::special:
      return Ink::grey;
    case lens::Label::same_token:
      return Ink::orange;
    case lens::Label::induction:
      return Ink::red;
    case lens::Label::broad:
      return Ink::green;
    case lens::Label::mixed:
      return Ink::pink;
  }
  return Ink::plain;
}

std::string unit_text(const lens::Report& report, int64_t unit) {
  return unit < 0 ? "-" : report.units[static_cast<size_t>(unit)].text;
}

}  // namespace regard::cli

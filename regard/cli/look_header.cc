#include "regard/cli/look_print.h"

#include <algorithm>

// What stands above and below the pictures: the model, the text, what was done to it, and a caution.
namespace regard::cli {
namespace {

using lens::Report;

constexpr int64_t kHeaderLines = 3;  // of a long text

std::string kind_of(const Report& report) {
  std::string text = report.model;
  const std::string size =
      std::to_string(report.layers) + " layers x " + std::to_string(report.heads) + " heads";
  return text + " (" + (report.architecture.empty() ? "" : report.architecture + ", ") + size + ")";
}

// The words of the text, the chosen one in bold, special tokens dim, cut after some lines.
void print_text(std::ostream& out, const Terminal& terminal, const Report& report) {
  Line line(terminal);
  line.add("  ");
  int64_t lines = 1;
  for (size_t u = 0; u < report.units.size(); ++u) {
    const lens::Unit& unit = report.units[u];
    const auto cells = static_cast<int64_t>(text::display_width(terminal.show(unit.text)));
    if (line.cells() > 2 && cells + 1 > line.left()) {
      if (lines == kHeaderLines) {
        out << line.text() << '\n';
        Line rest(terminal);
        rest.add("  ... and " + count_text(static_cast<int64_t>(report.units.size() - u)) + " more",
                 Ink::dim);
        out << rest.text() << '\n';
        return;
      }
      out << line.text() << '\n';
      line = Line(terminal);
      line.add("  ");
      ++lines;
    }
    const bool chosen = static_cast<int64_t>(u) == report.focus.unit;
    if (line.cells() > 2) line.add(" ");
    line.add(unit.text, chosen ? Ink::title : unit.special ? Ink::dim : Ink::plain);
  }
  out << line.text() << '\n';
}

}  // namespace

void print_header(std::ostream& out, const Terminal& terminal, const Report& report) {
  Line line(terminal);
  line.add(kind_of(report), Ink::bold);
  const auto words = std::count_if(report.word_units.begin(), report.word_units.end(),
                                   [](const lens::Unit& unit) { return !unit.special && !unit.punctuation; });
  line.add(" reads " + count_text(static_cast<int64_t>(report.tokens.size())) + " tokens" +
           (report.word_units.empty() ? "" : ", " + count_text(words) + " words"));
  out << line.text() << '\n';
  print_text(out, terminal, report);
  std::vector<std::string> notes;
  if (report.causal)
    notes.push_back("It reads from left to right: a token sees itself and what precedes it, nothing after.");
  if (report.words && report.units.size() < report.tokens.size()) {
    notes.push_back("Words are merged from " + count_text(static_cast<int64_t>(report.tokens.size())) +
                    " tokens: keys of a word summed, its queries averaged (--tokens shows the pieces).");
  }
  if (report.special_hidden)
    notes.push_back("Special tokens are hidden: the rows below are rescaled to sum to 1 without them.");
  if (report.tokens_before_cut > 0) {
    notes.push_back("The text was cut: " + count_text(static_cast<int64_t>(report.tokens.size())) + " of " +
                    count_text(report.tokens_before_cut) + " tokens were read.");
  }
  if (report.approximate)
    notes.push_back("Queries and keys were kept in 16 bits: weights are approximate, to about 0.001.");
  if (static_cast<int64_t>(report.kept_layers.size()) < report.layers) {
    std::string layers;
    for (const int64_t layer : report.kept_layers)
      layers += (layers.empty() ? "" : ", ") + std::to_string(layer);
    notes.push_back("Only layers " + layers + " were kept; every mean below is over these.");
  }
  for (const std::string& note : notes) print_wrapped(out, terminal, note, 2, Ink::dim);
  for (const std::string& warning : report.warnings) print_wrapped(out, terminal, warning, 2, Ink::warn);
}

void print_caution(std::ostream& out, const Terminal& terminal) {
  out << '\n';
  print_wrapped(
      out, terminal,
      "A weight says where a head takes its values from. It does not prove that the model's answer depends "
      "on it: values can be small, other heads and layers can undo it.",
      2, Ink::dim);
}

}  // namespace regard::cli

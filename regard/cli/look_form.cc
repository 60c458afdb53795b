#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "regard/cli/look_print.h"

// Another form of attention beside softmax: how far off each head is, and one row of both.
namespace regard::cli {
namespace {

constexpr size_t kMostHeads = 12;
constexpr size_t kMostKeys = 10;

std::string decimals(float value) {
  if (std::isnan(value)) return "-";
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.3f", static_cast<double>(value));
  return buffer;
}

void print_heads(std::ostream& out, const Terminal& terminal, const lens::FormReport& form) {
  std::vector<lens::FormHead> heads = form.heads;
  std::stable_sort(heads.begin(), heads.end(),
                   [](const auto& a, const auto& b) { return a.weight_error < b.weight_error; });
  Line head(terminal);
  head.cell("  head", 10)
      .cell("weights off", 13, text::Align::right)
      .cell("mass moved", 12, text::Align::right);
  head.cell("same key", 10, text::Align::right).cell("output off", 12, text::Align::right);
  out << '\n' << head.text() << '\n';
  for (size_t i = 0; i < heads.size(); ++i) {
    // Of many the best and the worst.
    if (heads.size() > kMostHeads && i == kMostHeads / 2) {
      i = heads.size() - kMostHeads / 2;
      Line gap(terminal);
      gap.add("  ... " + count_text(static_cast<int64_t>(heads.size() - kMostHeads)) + " between", Ink::dim);
      out << gap.text() << '\n';
    }
    const lens::FormHead& h = heads[i];
    Line line(terminal);
    line.cell("  " + head_name(h.layer, h.head), 10);
    line.cell(decimals(h.weight_error), 13, text::Align::right)
        .cell(decimals(h.moved), 12, text::Align::right);
    line.cell(decimals(h.same_top), 10, text::Align::right)
        .cell(decimals(h.output_error), 12, text::Align::right);
    out << line.text() << '\n';
  }
}

void print_row(std::ostream& out, const Terminal& terminal, const lens::Report& report,
               const lens::FormReport& form) {
  if (form.softmax.empty()) return;
  std::vector<size_t> keys(form.softmax.size());
  std::iota(keys.begin(), keys.end(), size_t{0});
  std::stable_sort(keys.begin(), keys.end(), [&](size_t a, size_t b) {
    return std::max(form.softmax[a], form.form[a]) > std::max(form.softmax[b], form.form[b]);
  });
  keys.resize(std::min(keys.size(), kMostKeys));
  const auto token = [&](int64_t at) { return report.tokens[static_cast<size_t>(at)].text; };
  Line title(terminal);
  title.add("'" + token(form.row) + "' in " + head_name(form.layer, form.head) +
                ", by the larger of the two weights",
            Ink::bold);
  out << '\n' << title.text() << '\n';
  Line head(terminal);
  head.cell("  key", 22).cell("softmax", 9, text::Align::right).cell(form.name, 11, text::Align::right);
  out << head.text() << '\n';
  for (const size_t key : keys) {
    Line line(terminal);
    line.cell("  " + token(static_cast<int64_t>(key)), 22);
    line.cell(decimals(form.softmax[key]), 9, text::Align::right);
    line.cell(decimals(form.form[key]), 11, text::Align::right);
    line.add("  ").add(terminal.bar(std::clamp<double>(static_cast<double>(form.form[key]), 0, 1), 20),
                       Ink::blue);
    out << line.text() << '\n';
  }
}

}  // namespace

void print_form(std::ostream& out, const Terminal& terminal, const lens::Report& report,
                const lens::FormReport& form) {
  print_wrapped(out, terminal, "Beside softmax: " + form.description + ".", 2, Ink::plain);
  print_heads(out, terminal, form);
  print_wrapped(out, terminal,
                "Off: the norm of the difference over that of softmax. Moved: the mass that lies on other "
                "keys. Same key: "
                "rows whose largest weight is on the same key. The model was not trained for this form.",
                2, Ink::dim);
  print_row(out, terminal, report, form);
}

}  // namespace regard::cli

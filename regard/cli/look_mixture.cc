#include "regard/cli/look_print.h"

#include <algorithm>
#include <cstdio>

#include "regard/lens/mixture.h"

// A row of weights as the line `it = 0.21 animal + 0.14 it + ...`.
namespace regard::cli {
namespace {

using lens::Label;
using lens::Report;

std::string sink_words(const Report& report, const lens::Mixture& mixture) {
  std::string text;
  for (size_t s = 0; s < mixture.sinks.size() && s < 3; ++s) {
    if (mixture.sinks[s].weight < 0.005F) break;
    text += (s > 0 ? ", " : "") + unit_text(report, mixture.sinks[s].unit) + " " +
            weight_text(mixture.sinks[s].weight);
  }
  return text;
}

}  // namespace

std::vector<const lens::FocusHead*> telling_heads(const Report& report) {
  const auto positional = [](Label label) {
    return label == Label::previous || label == Label::next || label == Label::self;
  };
  std::vector<const lens::FocusHead*> out;
  for (const bool any : {false, true}) {
    for (const lens::FocusHead& head : report.focus.heads) {
      if (head.top_unit < 0 || (!any && positional(head.label))) continue;
      const bool told =
          std::any_of(out.begin(), out.end(), [&](const auto* h) { return h->top_unit == head.top_unit; });
      if (!told && out.size() < 2) out.push_back(&head);
    }
    if (!out.empty()) break;
  }
  return out;
}

std::vector<std::string> mixture_lines(const Terminal& terminal, const Report& report,
                                       const lens::Mixture& mixture, int64_t width) {
  const std::vector<int> parts = lens::hundredths(mixture);
  const auto number = [](int hundredths) {
    char buffer[16];
    std::snprintf(buffer, sizeof buffer, "%d.%02d", hundredths / 100, hundredths % 100);
    return std::string(buffer);
  };
  const std::string word = unit_text(report, report.focus.unit);
  std::vector<std::string> pieces{word + " ="};
  const auto add = [&](const std::string& term) { pieces.push_back((pieces.size() > 1 ? "+ " : "") + term); };
  for (size_t t = 0; t < mixture.terms.size(); ++t) {
    add(number(parts[t]) + " " + unit_text(report, mixture.terms[t].unit));
  }
  if (mixture.rest_units > 0 && parts.back() > 0) {
    add(number(parts.back()) + " (" + count_text(mixture.rest_units) + " other " +
        (report.words ? "word" : "token") + (mixture.rest_units == 1 ? ")" : "s)"));
  }
  const auto name_cells = static_cast<int64_t>(text::display_width(terminal.show(word))) + 1;
  const int64_t indent = std::min<int64_t>(name_cells, width / 3);
  std::vector<std::string> lines = wrap(terminal, pieces, width, indent, 0);
  if (parts[mixture.terms.size()] > 0) {
    std::string sinks =
        "+ " + number(parts[mixture.terms.size()]) + " resting on " + sink_words(report, mixture);
    if (!report.special_hidden) {
      sinks += report.causal ? " (the first token, where idle heads rest)"
                             : " (special tokens, where idle heads rest)";
    }
    for (std::string& line : wrap(terminal, sinks, width, indent + 2, indent))
      lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace regard::cli

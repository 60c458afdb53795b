#include "regard/cli/look_print.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "regard/lens/mixture.h"

namespace regard::cli {
namespace {

using lens::Label;
using lens::Report;

constexpr int64_t kHeaderLines = 3;  // of a long text
constexpr int64_t kWords = 8;        // words in the table of the focus
constexpr int64_t kHeads = 6;        // heads in its list
constexpr int64_t kGridCell = 6;

// Columns of the table of words.
constexpr int64_t kBar = 12;
constexpr int64_t kStrongest = 38;
constexpr int64_t kRollout = 73;

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

void print_wrapped(std::ostream& out, const Terminal& terminal, const std::string& text, int64_t indent,
                   Ink ink) {
  for (const std::string& line : wrap(terminal, text, terminal.width, indent, indent)) {
    out << terminal.ink(line, ink) << '\n';
  }
}

struct LabelCount {
  Label label = Label::mixed;
  int64_t heads = 0;
  const lens::HeadReport* strongest = nullptr;
};

std::vector<LabelCount> count_labels(const Report& report) {
  std::vector<LabelCount> counts(lens::kLabels);
  for (const lens::HeadReport& head : report.grid) {
    LabelCount& count = counts[static_cast<size_t>(head.label)];
    count.label = head.label;
    ++count.heads;
    if (count.strongest == nullptr || head.label_score > count.strongest->label_score)
      count.strongest = &head;
  }
  std::erase_if(counts, [](const LabelCount& count) { return count.heads == 0; });
  return counts;
}

void print_legend(std::ostream& out, const Terminal& terminal, const Report& report) {
  for (const LabelCount& count : count_labels(report)) {
    Line line(terminal);
    line.add("  ").cell(label_code(count.label), 8, text::Align::left, label_ink(count.label));
    line.cell(lens::description(count.label), 46);
    line.cell(std::to_string(count.heads), 5, text::Align::right).add(count.heads == 1 ? " head " : " heads");
    if (count.label != Label::mixed) {
      line.add("  " + head_name(count.strongest->layer, count.strongest->head) + " " +
                   weight_text(count.strongest->label_score),
               Ink::dim);
    }
    out << line.text() << '\n';
  }
  Line line(terminal);
  line.add("  ").cell(terminal.level(0.0) + " to " + terminal.level(1.0), 8);
  line.add("entropy: from one word that takes all, to all words alike");
  out << line.text() << '\n';
}

void print_word_table(std::ostream& out, const Terminal& terminal, const Report& report) {
  const lens::Focus& focus = report.focus;
  std::vector<int64_t> order(report.units.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](int64_t u) { return lens::is_sink(report.units, u, report.causal); });
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return focus.mean_weights[static_cast<size_t>(a)] > focus.mean_weights[static_cast<size_t>(b)];
  });
  if (static_cast<int64_t>(order.size()) > kWords) order.resize(kWords);
  std::erase_if(order, [&](int64_t u) { return focus.mean_weights[static_cast<size_t>(u)] <= 0; });
  if (order.empty()) return;
  const int64_t word_cells = 16;
  Line title(terminal);
  title.pad_to(word_cells + 3).add("mean of " + std::to_string(report.grid.size()) + " heads", Ink::dim);
  title.pad_to(kStrongest).add("most in one head, and in another", Ink::dim);
  if (!focus.rollout.empty()) title.pad_to(kRollout).add("rollout", Ink::dim);
  out << title.text() << '\n';
  const float largest = focus.mean_weights[static_cast<size_t>(order.front())];
  for (const int64_t u : order) {
    const auto i = static_cast<size_t>(u);
    int64_t column = kStrongest;
    Line line(terminal);
    line.add("  ").cell(unit_text(report, u), word_cells, text::Align::right,
                        u == focus.unit ? Ink::bold : Ink::plain);
    line.add(" ").cell(weight_text(focus.mean_weights[i]), 5);
    line.cell(terminal.bar(focus.mean_weights[i] / largest, kBar), kBar + 2, text::Align::left, Ink::blue);
    for (const lens::Focus::Strongest& head : focus.strongest[i]) {
      line.add(weight_text(head.weight), Ink::bold).add(" " + head_name(head.layer, head.head));
      line.cell("", 1).add(label_code(head.label), label_ink(head.label)).add("  ");
      line.pad_to(column += 17);
    }
    line.pad_to(kRollout);
    if (!focus.rollout.empty()) line.add(weight_text(focus.rollout[i]));
    out << line.text() << '\n';
  }
}

void print_best_heads(std::ostream& out, const Terminal& terminal, const Report& report) {
  const lens::Focus& focus = report.focus;
  const std::string target =
      focus.on_unit >= 0 ? "'" + unit_text(report, focus.on_unit) + "'" : "another word";
  Line title(terminal);
  title.add("  Heads in which '" + unit_text(report, focus.unit) + "' looks most at " + target, Ink::bold);
  out << '\n' << title.text() << '\n';
  for (size_t h = 0; h < focus.heads.size() && static_cast<int64_t>(h) < kHeads; ++h) {
    const lens::FocusHead& head = focus.heads[h];
    if (head.top_unit < 0) continue;
    Line line(terminal);
    line.add("  ").cell(head_name(head.layer, head.head), 8);
    line.cell(std::string(lens::name(head.label)) +
                  (head.label == Label::mixed ? "" : " " + weight_text(head.label_score)),
              17, text::Align::left, label_ink(head.label));
    line.add(weight_text(head.top_weight) + " ", Ink::bold).add(unit_text(report, head.top_unit), Ink::bold);
    // What else the row holds, by weight.
    std::vector<int64_t> order(head.weights.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return head.weights[static_cast<size_t>(a)] > head.weights[static_cast<size_t>(b)];
    });
    int64_t named = 0;
    for (const int64_t u : order) {
      const float weight = head.weights[static_cast<size_t>(u)];
      if (u == head.top_unit) continue;
      const std::string text = "   " + weight_text(weight) + " " + unit_text(report, u);
      const auto cells = static_cast<int64_t>(text::display_width(terminal.show(text)));
      if (named == 4 || weight < 0.02F || cells > line.left()) break;
      line.add(text, Ink::dim);
      ++named;
    }
    out << line.text() << '\n';
  }
}

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

const char* label_code(Label label) {
  switch (label) {
    case Label::previous:
      return "prev";
    case Label::next:
      return "next";
    case Label::self:
      return "self";
    case Label::first:
      return "1st";
    case Label::special:
      return "spec";
    case Label::same_token:
      return "same";
    case Label::induction:
      return "ind";
    case Label::broad:
      return "even";
    case Label::mixed:
      return "mix";
  }
  return "?";
}

Ink label_ink(Label label) {
  switch (label) {
    case Label::previous:
      return Ink::blue;
    case Label::next:
      return Ink::sky;
    case Label::self:
      return Ink::yellow;
    case Label::first:
    case Label::special:
      return Ink::grey;
    case Label::same_token:
      return Ink::orange;
    case Label::induction:
      return Ink::red;
    case Label::broad:
      return Ink::green;
    case Label::mixed:
      return Ink::pink;
  }
  return Ink::plain;
}

std::string unit_text(const Report& report, int64_t unit) {
  return unit < 0 ? "-" : report.units[static_cast<size_t>(unit)].text;
}

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

void print_grid(std::ostream& out, const Terminal& terminal, const Report& report) {
  Line title(terminal);
  title.add("What each head does with this text", Ink::title)
      .add("  (a row a layer, a column a head)", Ink::dim);
  out << '\n' << title.text() << '\n';
  const int64_t margin = 5;
  const int64_t fit = std::max<int64_t>(1, (terminal.width - margin) / kGridCell);
  const int64_t parts = (report.heads + fit - 1) / fit;
  const int64_t per_part = parts > 0 ? (report.heads + parts - 1) / parts : 0;
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t begin = part * per_part;
    const int64_t end = std::min(report.heads, begin + per_part);
    Line numbers(terminal);
    numbers.cell("", margin);
    for (int64_t head = begin; head < end; ++head)
      numbers.cell(std::string("H").append(std::to_string(head)), kGridCell, text::Align::left, Ink::dim);
    out << numbers.text() << '\n';
    for (size_t row = 0; row < report.kept_layers.size(); ++row) {
      Line line(terminal);
      line.cell(std::string("L").append(std::to_string(report.kept_layers[row])), margin - 1,
                text::Align::right, Ink::dim)
          .add(" ");
      for (int64_t head = begin; head < end; ++head) {
        const lens::HeadReport& cell =
            report.grid[row * static_cast<size_t>(report.heads) + static_cast<size_t>(head)];
        line.pad_to(margin + (head - begin) * kGridCell);
        line.add(label_code(cell.label), label_ink(cell.label))
            .add(terminal.level(cell.entropy_share), Ink::dim);
      }
      out << line.text() << '\n';
    }
  }
  out << '\n';
  print_legend(out, terminal, report);
  if (report.weak) {
    print_wrapped(out, terminal,
                  "Labels are weak here: they are measured on this text, and " +
                      std::to_string(report.tokens.size()) + " tokens are few (32 or more say more).",
                  2, Ink::dim);
  }
}

void print_focus(std::ostream& out, const Terminal& terminal, const Report& report) {
  const lens::Focus& focus = report.focus;
  if (focus.unit < 0) return;
  Line title(terminal);
  title.add("Where '" + unit_text(report, focus.unit) + "' looks", Ink::title);
  if (focus.occurrences > 1) {
    title.add("  (place " + std::to_string(focus.occurrence) + " of " + count_text(focus.occurrences) +
                  "; --token '" + unit_text(report, focus.unit) + "#" +
                  std::to_string(focus.occurrence % focus.occurrences + 1) + "' is another)",
              Ink::dim);
  } else if (focus.chosen_by_user) {
    title.add("  (a row of attention weights sums to 1)", Ink::dim);
  }
  out << '\n' << title.text() << '\n';
  if (!focus.chosen_by_user)
    print_wrapped(out, terminal, "Chosen by rule: " + focus.reason + ".", 2, Ink::dim);
  print_word_table(out, terminal, report);
  if (!focus.rollout.empty()) {
    print_wrapped(out, terminal, "rollout: all layers chained, half of each left to the residual path.", 2,
                  Ink::dim);
  }
  print_best_heads(out, terminal, report);
  out << '\n';
  const auto print_mixture = [&](const std::string& whose, const lens::Mixture& mixture) {
    Line line(terminal);
    line.add("  " + whose, Ink::dim);
    out << line.text() << '\n';
    for (const std::string& text : mixture_lines(terminal, report, mixture, terminal.width - 4)) {
      out << "    " << text << '\n';
    }
  };
  print_mixture("the mean of all " + std::to_string(report.grid.size()) + " heads:", focus.mean_mixture);
  for (const lens::FocusHead* head : telling_heads(report)) {
    print_mixture(
        "head " + head_name(head->layer, head->head) + " (" + std::string(lens::name(head->label)) + "):",
        head->mixture);
  }
}

void print_received(std::ostream& out, const Terminal& terminal, const Report& report) {
  const lens::Focus& focus = report.focus;
  if (focus.unit < 0) return;
  Line title(terminal);
  title.add("Who looks at '" + unit_text(report, focus.unit) + "'", Ink::title);
  out << '\n' << title.text() << '\n';
  if (focus.received.empty()) {
    out << "  no other word can see it\n";
    return;
  }
  for (const lens::Focus::Received& pair : focus.received) {
    Line line(terminal);
    line.add("  ").cell(unit_text(report, pair.unit), 16, text::Align::right).add(" ");
    line.cell(weight_text(pair.weight), 6)
        .cell(terminal.bar(pair.weight, 16), 19, text::Align::left, Ink::blue);
    line.cell(head_name(pair.layer, pair.head), 8)
        .cell(lens::name(pair.label), 12, text::Align::left, label_ink(pair.label));
    line.add("mean " + weight_text(focus.received_mean[static_cast<size_t>(pair.unit)]), Ink::dim);
    out << line.text() << '\n';
  }
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

#include "regard/cli/look_print.h"

#include <algorithm>
#include <numeric>

#include "regard/lens/mixture.h"

// The chosen word: where it looks, in which heads, and who looks at it.
namespace regard::cli {
namespace {

using lens::Label;
using lens::Report;

constexpr int64_t kWords = 8;  // words in the table of the focus
constexpr int64_t kHeads = 6;  // heads in its list

// Columns of the table of words.
constexpr int64_t kBar = 12;
constexpr int64_t kStrongest = 38;
constexpr int64_t kRollout = 73;

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

}  // namespace

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

}  // namespace regard::cli

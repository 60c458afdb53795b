#include <algorithm>
#include <numeric>

#include "regard/cli/look_print.h"
#include "regard/lens/mixture.h"

// `--compare`: the chosen words of two texts side by side.
namespace regard::cli {
namespace {

using lens::Report;

constexpr size_t kWords = 6;
constexpr size_t kHeads = 6;

using Section = std::vector<std::string>;

// One column of the page, section by section, in lines that fit into the terminal it is given.
std::vector<Section> column(const Terminal& terminal, const Report& report) {
  std::vector<Section> sections(1);
  const lens::Focus& focus = report.focus;
  std::string text;
  for (size_t u = 0; u < report.units.size() && text.size() < 400; ++u) {
    if (!report.units[u].special) text += (text.empty() ? "" : " ") + report.units[u].text;
  }
  sections.back() = wrap(terminal, text, terminal.width);
  const auto title = [&](const std::string& what) {
    Line line(terminal);
    line.add(what, Ink::bold);
    sections.push_back({line.text()});
  };
  const auto add = [&](std::vector<std::string> lines) {
    for (std::string& line : lines) sections.back().push_back(std::move(line));
  };

  title("'" + unit_text(report, focus.unit) + "', mean of " + std::to_string(report.grid.size()) + " heads");
  std::vector<int64_t> order(report.units.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](int64_t u) { return lens::is_sink(report.units, u, report.causal); });
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return focus.mean_weights[static_cast<size_t>(a)] > focus.mean_weights[static_cast<size_t>(b)];
  });
  for (size_t i = 0; i < order.size() && i < kWords; ++i) {
    const float weight = focus.mean_weights[static_cast<size_t>(order[i])];
    const float largest = focus.mean_weights[static_cast<size_t>(order.front())];
    Line line(terminal);
    line.add(" ")
        .cell(unit_text(report, order[i]), 12, text::Align::right)
        .add(" ")
        .cell(weight_text(weight), 6);
    line.add(terminal.bar(largest > 0 ? weight / largest : 0, std::max<int64_t>(line.left() - 1, 1)),
             Ink::blue);
    add({line.text()});
  }

  title(focus.on_unit >= 0 ? "heads most on '" + unit_text(report, focus.on_unit) + "'"
                           : "heads most on another word");
  for (size_t h = 0; h < focus.heads.size() && h < kHeads; ++h) {
    const lens::FocusHead& head = focus.heads[h];
    if (head.top_unit < 0) continue;
    Line line(terminal);
    line.add(" ").cell(head_name(head.layer, head.head), 7);
    line.cell(lens::name(head.label), 11, text::Align::left, label_ink(head.label));
    line.cell(weight_text(head.top_weight), 6, text::Align::left, Ink::bold)
        .add(unit_text(report, head.top_unit));
    add({line.text()});
  }

  title("mean of all heads");
  add(mixture_lines(terminal, report, focus.mean_mixture, terminal.width));
  for (const lens::FocusHead* head : telling_heads(report)) {
    title("head " + head_name(head->layer, head->head) + " (" + std::string(lens::name(head->label)) + ")");
    add(mixture_lines(terminal, report, head->mixture, terminal.width));
  }
  return sections;
}

const lens::HeadReport* same_head(const Report& report, const lens::HeadReport& like) {
  for (const lens::HeadReport& head : report.grid) {
    if (head.layer == like.layer && head.head == like.head) return &head;
  }
  return nullptr;
}

// Heads whose label is another on the second text, most certain first.
void print_changes(std::ostream& out, const Terminal& terminal, const Report& a, const Report& b) {
  std::string changes;
  int64_t count = 0;
  for (const lens::HeadReport& head : a.grid) {
    const lens::HeadReport* other = same_head(b, head);
    if (other == nullptr || other->label == head.label) continue;
    ++count;
    if (count <= 8) {
      changes += (changes.empty() ? "" : ", ") + head_name(head.layer, head.head) + " " +
                 std::string(lens::name(head.label)) + " -> " + std::string(lens::name(other->label));
    }
  }
  const std::string text = count == 0
                               ? "Every head has the same label on both texts."
                               : std::to_string(count) + " of " + std::to_string(a.grid.size()) +
                                     " heads have another label on the second text: " + changes +
                                     (count > 8 ? ", and " + std::to_string(count - 8) + " more" : "") + ".";
  out << '\n';
  for (const std::string& line : wrap(terminal, text, terminal.width))
    out << terminal.ink(line, Ink::dim) << '\n';
}

}  // namespace

void print_comparison(std::ostream& out, const Terminal& terminal, const Report& a, const Report& b) {
  Line title(terminal);
  title.add(a.model, Ink::bold).add(": two texts side by side");
  out << title.text() << "\n\n";
  Terminal half = terminal;
  half.width = (terminal.width - 3) / 2;
  std::vector<Section> left = column(half, a);
  std::vector<Section> right = column(half, b);
  const size_t sections = std::max(left.size(), right.size());
  left.resize(sections);
  right.resize(sections);
  const std::string bar = terminal.unicode ? " │ " : " | ";
  for (size_t s = 0; s < sections; ++s) {
    // Both sides may take different numbers of lines; what follows starts on the same one, after an empty
    // one.
    const size_t lines = std::max(left[s].size(), right[s].size()) + (s + 1 < sections ? 1 : 0);
    left[s].resize(lines);
    right[s].resize(lines);
    for (size_t i = 0; i < lines; ++i) {
      const int64_t pad = half.width - visible_width(left[s][i]);
      out << left[s][i] << std::string(static_cast<size_t>(std::max<int64_t>(pad, 0)), ' ') << bar
          << right[s][i] << '\n';
    }
  }
  print_changes(out, terminal, a, b);
}

}  // namespace regard::cli

#include "regard/cli/look_print.h"

#include <algorithm>

#include "regard/lens/report.h"

// All heads by label and entropy.
namespace regard::cli {
namespace {

using lens::Label;
using lens::Report;

constexpr int64_t kGridCell = 6;

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

}  // namespace

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

}  // namespace regard::cli

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "regard/cli/look_print.h"

// `--trace`: one position of one head, step by step.
namespace regard::cli {
namespace {

constexpr size_t kKeys = 16;  // keys of a long text that get a line of their own

std::string number(double value, int digits = 3) {
  char buffer[48];
  std::snprintf(buffer, sizeof buffer, "%.*f", digits, value);
  return buffer;
}

std::string scientific(double value) {
  char buffer[48];
  std::snprintf(buffer, sizeof buffer, "%.1e", value);
  return buffer;
}

template <class T>
std::string first_components(const std::vector<T>& values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size() && i < 4; ++i)
    text += (i > 0 ? " " : "") + number(static_cast<double>(values[i]));
  return text + (values.size() > 4 ? " ...]" : "]");
}

void print_vector(std::ostream& out, const Terminal& terminal, const char* name,
                  const std::vector<float>& values, const std::string& what) {
  if (values.empty()) return;
  Line line(terminal);
  line.add("  ").cell(name, 4, text::Align::left, Ink::bold);
  line.cell("|" + std::string(name) + "| = " + number(lens::norm(values)), 16);
  line.cell(first_components(values), 34).add(what, Ink::dim);
  out << line.text() << '\n';
}

void step(std::ostream& out, const Terminal& terminal, int number, const std::string& text) {
  bool first = true;
  for (const std::string& part : wrap(terminal, std::to_string(number) + ". " + text, terminal.width, 3)) {
    out << (first ? "\n" : "") << terminal.ink(part, Ink::bold) << '\n';
    first = false;
  }
}

void print_keys(std::ostream& out, const Terminal& terminal, const lens::Report& report,
                const lens::Trace& trace) {
  // In the order of the text; of a long one the heaviest only.
  std::vector<size_t> shown(trace.keys.size());
  std::iota(shown.begin(), shown.end(), size_t{0});
  double rest = 0;
  if (shown.size() > kKeys) {
    std::stable_sort(shown.begin(), shown.end(),
                     [&](size_t a, size_t b) { return trace.keys[a].weight > trace.keys[b].weight; });
    for (size_t i = kKeys; i < shown.size(); ++i) rest += trace.keys[shown[i]].weight;
    shown.resize(kKeys);
    std::sort(shown.begin(), shown.end());
  }
  Line head(terminal);
  head.cell("", 2);
  for (const char* name : {"key", "|k|", "cos", "q.k", "score", "weight"}) {
    const bool is_key = std::string_view(name) == "key";
    head.cell(name, is_key ? 16 : 9, is_key ? text::Align::left : text::Align::right, Ink::dim);
  }
  out << head.text() << '\n';
  double largest = 0;
  for (const lens::TraceKey& key : trace.keys) largest = std::max(largest, key.weight);
  for (const size_t i : shown) {
    const lens::TraceKey& key = trace.keys[i];
    Line line(terminal);
    line.cell("", 2).cell(report.tokens[i].text, 16, text::Align::left,
                          key.position == trace.position ? Ink::bold : Ink::plain);
    line.cell(number(key.k_norm), 9, text::Align::right).cell(number(key.cosine), 9, text::Align::right);
    line.cell(number(key.dot), 9, text::Align::right);
    if (key.visible) {
      line.cell(number(key.score), 9, text::Align::right);
      line.cell(number(key.weight, 4), 9, text::Align::right, Ink::bold);
      line.add("  " + terminal.bar(largest > 0 ? key.weight / largest : 0, 14), Ink::blue);
    } else {
      line.cell("masked", 9, text::Align::right, Ink::dim).cell("0", 9, text::Align::right, Ink::dim);
    }
    out << line.text() << '\n';
  }
  if (shown.size() < trace.keys.size()) {
    Line line(terminal);
    line.add("  and " + count_text(static_cast<int64_t>(trace.keys.size() - shown.size())) +
                 " keys more, together " + number(rest, 4),
             Ink::dim);
    out << line.text() << '\n';
  }
}

}  // namespace

void print_trace(std::ostream& out, const Terminal& terminal, const lens::Report& report,
                 const lens::Trace& trace) {
  const lens::Token& token = report.tokens[static_cast<size_t>(trace.position)];
  Line title(terminal);
  title.add("Attention step by step: '" + token.text + "' (position " + std::to_string(trace.position) +
                ") in " + head_name(trace.layer, trace.head),
            Ink::title);
  out << '\n' << title.text() << '\n';

  step(out, terminal, 1,
       "The token's vector x is projected three times: q asks, k is what others ask against, v is what is "
       "handed on.");
  print_vector(out, terminal, "x", trace.x, count_text(static_cast<int64_t>(trace.x.size())) + " numbers");
  print_vector(out, terminal, "q", trace.q, std::to_string(trace.q.size()) + " numbers");
  print_vector(
      out, terminal, "k", trace.k,
      trace.kv_head != trace.head ? "of key head " + std::to_string(trace.kv_head) + ", shared" : "");
  print_vector(out, terminal, "v", trace.v, "");
  if (trace.x.empty()) out << terminal.ink("  x was not kept\n", Ink::dim);

  step(out, terminal, 2,
       "q meets every key: q.k = |q| |k| cos, score = q.k times " + number(trace.scale, 4) + " (1 / sqrt(" +
           std::to_string(trace.q.size()) +
           ") = " + number(1 / std::sqrt(static_cast<double>(trace.q.size())), 4) + "), mask (" + trace.mask +
           "), softmax: weight = exp(score - " + number(trace.largest_score) + ") / " +
           number(trace.sum_of_exp) + ".");
  print_keys(out, terminal, report, trace);

  if (trace.out.empty()) {
    step(out, terminal, 3, "The sum of weight times v is left out: v was not given.");
    return;
  }
  step(out, terminal, 3, "The values are summed by weight: out = sum of weight times v.");
  Line by_hand(terminal);
  by_hand.add("  ").cell("by hand, these loops in float64", 35).add(first_components(trace.out));
  Line by_kernel(terminal);
  by_kernel.add("  ").cell("softmax(Q K^T) V, the kernel's row", 35).add(first_components(trace.kernel_out));
  Line equal(terminal);
  equal.add("  largest difference " + scientific(trace.largest_difference) + " in out, " +
                scientific(trace.largest_weight_difference) +
                " in the weights: " + (trace.largest_difference < 1e-4 ? "the same" : "not the same"),
            Ink::dim);
  out << by_hand.text() << '\n' << by_kernel.text() << '\n' << equal.text() << '\n';
}

}  // namespace regard::cli

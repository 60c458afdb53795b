#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "regard/cli/terminal.h"
#include "regard/lens/form.h"
#include "regard/lens/recording.h"
#include "regard/lens/report.h"
#include "regard/lens/trace.h"

// What `look` prints, part by part. Every line fits into the terminal.
namespace regard::cli {

void print_header(std::ostream& out, const Terminal& terminal, const lens::Report& report);

// All heads by label and entropy, and a legend of what is in it.
void print_grid(std::ostream& out, const Terminal& terminal, const lens::Report& report);

// Where the chosen word looks, and `it = 0.21 animal + ...`.
void print_focus(std::ostream& out, const Terminal& terminal, const lens::Report& report);

// Who looks at the chosen word.
void print_received(std::ostream& out, const Terminal& terminal, const lens::Report& report);

// What weights do not prove.
void print_caution(std::ostream& out, const Terminal& terminal);

// One head's whole map: rows look, columns are looked at. Texts with more units than columns are pooled by
// their largest weight.
void print_map(std::ostream& out, const Terminal& terminal, const lens::Recording& recording,
               const lens::Report& report, int64_t layer, int64_t head);

void print_trace(std::ostream& out, const Terminal& terminal, const lens::Report& report,
                 const lens::Trace& trace);

// Two texts side by side.
void print_comparison(std::ostream& out, const Terminal& terminal, const lens::Report& a,
                      const lens::Report& b);

// Another form of attention beside softmax.
void print_form(std::ostream& out, const Terminal& terminal, const lens::Report& report,
                const lens::FormReport& form);

// Pieces that several parts use.
void print_wrapped(std::ostream& out, const Terminal& terminal, const std::string& text, int64_t indent,
                   Ink ink);
std::string count_text(int64_t number);              // 8,000
std::string weight_text(float weight);               // 0.64; 0.997 where two digits would say 1
std::string head_name(int64_t layer, int64_t head);  // L5H11
const char* label_code(lens::Label label);           // prev, next, self, 1st, spec, same, ind, even, mix
Ink label_ink(lens::Label label);
std::string unit_text(const lens::Report& report, int64_t unit);
// The heads whose mixtures say most: at most two that look at different words, positional ones only where
// there are no others.
std::vector<const lens::FocusHead*> telling_heads(const lens::Report& report);
// `it = 0.21 animal + 0.14 it + ... + 0.20 (8 other words)` and the sinks on a line of their own.
std::vector<std::string> mixture_lines(const Terminal& terminal, const lens::Report& report,
                                       const lens::Mixture& mixture, int64_t width);

}  // namespace regard::cli

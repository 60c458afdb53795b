// What the articles say, measured: each experiment computes tables and says of each claim what came out. This
// room computes and never prints; `regard explain` prints.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "regard/lab/verdict.h"

namespace regard::lab {

struct Options {
  bool quick = false;   // smaller sizes, fewer draws: indicative only
  int64_t seeds = 3;    // of a full run and of a quick one alike; at least 1
  int64_t threads = 0;  // of libtorch; 0: as they are. Told to experiments that state it
  // Told what is being measured, now and then; may throw to stop.
  std::function<void(const std::string&)> progress = nullptr;
  void tell(const std::string& what) const {
    if (progress) progress(what);
  }
  // The full size, or the quick one.
  int64_t size(int64_t full, int64_t quick_size) const { return quick ? quick_size : full; }
};

// A column of one type: text, whole numbers, or numbers shown with `digits` digits behind the point (-1:
// three significant ones).
struct Column {
  enum class Type : uint8_t { text, count, number };
  std::string name;
  Type type = Type::number;
  int digits = -1;
};
using Cell = std::variant<std::string, int64_t, double>;
struct Table {
  std::string name;   // of its file: "scaling"
  std::string title;  // what it shows
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;
  // Throws std::invalid_argument where the cells do not fit the columns.
  void add(std::vector<Cell> row);
  double number(size_t row,
                std::string_view column) const;  // throws std::invalid_argument for no such column
};

struct Curve {
  std::string label;
  std::vector<double> x, y;
};
// A picture: lines over x, or, where `bars` names the groups, bars (a curve's y, one for each group).
struct Plot {
  std::string title, x_label, y_label;
  bool log_x = false, log_y = false;
  std::vector<std::string> bars;
  std::vector<Curve> curves;
};

struct Finding {
  std::string claim;     // one sentence, as the article means it
  std::string source;    // which article, which section
  std::string measured;  // one sentence with the numbers
  Verdict verdict = Verdict::not_decided;
};

struct Result {
  std::vector<Table> tables;
  std::vector<Plot> plots;
  std::vector<Finding> findings;
  std::vector<std::string> notes;
  double seconds = 0;
};

struct Experiment {
  std::string name;      // "scaling"
  std::string title;     // what it is about
  std::string claim;     // the article's claim, one sentence
  std::string source;    // which article, which section
  bool trained = false;  // models are trained: differences are judged against the spread over seeds
  Result (*measure)(const Options&) = nullptr;
};

// In the order of the articles.
const std::vector<Experiment>& experiments();
// Throws std::invalid_argument naming the nearest one.
const Experiment& experiment(std::string_view name);
// Measures, and fills Result::seconds. Throws std::invalid_argument for seeds < 1.
Result run(const Experiment& experiment, const Options& options);

// A table as a CSV file (RFC 4180): a row of names, numbers with all their digits.
std::string csv(const Table& table);
// A cell as it is printed.
std::string shown(const Cell& cell, const Column& column);

// The articles, as the documents name them.
inline constexpr const char* kFirstArticle = "From attention to self-attention";
inline constexpr const char* kSeries = "Transformer series (10): self-attention";
inline constexpr const char* kEssence = "The essence of self-attention";

}  // namespace regard::lab

#include "regard/lab/experiment.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <stdexcept>

#include "regard/io/suggest.h"
#include "regard/lab/measures.h"

namespace regard::lab {
namespace {

bool fits(const Cell& cell, Column::Type type) {
  return cell.index() == static_cast<size_t>(type);
}

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

}  // namespace

void Table::add(std::vector<Cell> row) {
  bool right = row.size() == columns.size();
  for (size_t i = 0; right && i < row.size(); ++i) right = fits(row[i], columns[i].type);
  if (!right)
    throw std::invalid_argument("table " + name + ": a row's cells do not fit its " +
                                std::to_string(columns.size()) + " columns");
  rows.push_back(std::move(row));
}

double Table::number(size_t row, std::string_view column) const {
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].name != column || columns[i].type == Column::Type::text) continue;
    const Cell& cell = rows.at(row)[i];
    return columns[i].type == Column::Type::count ? static_cast<double>(std::get<int64_t>(cell))
                                                  : std::get<double>(cell);
  }
  throw std::invalid_argument("table " + name + " has no column of numbers '" + std::string(column) + "'");
}

const Experiment& experiment(std::string_view name) {
  std::vector<std::string> names;
  for (const Experiment& one : experiments()) {
    if (one.name == name) return one;
    names.push_back(one.name);
  }
  std::string message = "there is no experiment '" + std::string(name) + "'";
  const std::string near = io::suggest(name, names);
  if (!near.empty()) throw std::invalid_argument(message + "; did you mean '" + near + "'?");
  message += "; there are ";
  for (size_t i = 0; i < names.size(); ++i) message += (i > 0 ? ", " : "") + names[i];
  throw std::invalid_argument(message);
}

Result run(const Experiment& experiment, const Options& options) {
  if (options.seeds < 1)
    throw std::invalid_argument("seeds is " + std::to_string(options.seeds) + "; at least 1");
  const auto begin = std::chrono::steady_clock::now();
  Result result = experiment.measure(options);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

std::string shown(const Cell& cell, const Column& column) {
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  if (const auto* count = std::get_if<int64_t>(&cell)) return std::to_string(*count);
  const double value = std::get<double>(cell);
  char text[64];
  if (column.digits < 0 || !std::isfinite(value)) {
    std::snprintf(text, sizeof text, "%.3g", value);
  } else {
    std::snprintf(text, sizeof text, "%.*f", column.digits, value);
  }
  return text;
}

std::string csv(const Table& table) {
  std::string out;
  for (size_t i = 0; i < table.columns.size(); ++i) out += (i > 0 ? "," : "") + quoted(table.columns[i].name);
  out += "\r\n";
  for (const auto& row : table.rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) out += ',';
      if (const auto* number = std::get_if<double>(&row[i])) {
        char text[64];
        std::snprintf(text, sizeof text, "%.17g", *number);
        out += text;
      } else {
        out += quoted(shown(row[i], table.columns[i]));
      }
    }
    out += "\r\n";
  }
  return out;
}

}  // namespace regard::lab

#include "bench/roofline.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <map>
#include <sstream>

namespace regard::bench {
namespace {

constexpr double kLeft = 70, kTop = 30, kWidth = 640, kHeight = 400;

struct Axis {
  double low, high;  // powers of ten of the ends
  double at(double value) const { return (std::log10(value) - low) / (high - low); }
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// Okabe and Ito's colours, told apart by colour-blind readers too.
const std::map<std::string, std::string>& colours() {
  static const std::map<std::string, std::string> by_op = {
      {"forward", "#0072B2"}, {"backward", "#D55E00"}, {"forward_backward", "#CC79A7"},
      {"decode", "#009E73"},  {"observe", "#E69F00"},  {"custom", "#000000"}};
  return by_op;
}

std::string colour(const std::string& op) {
  const auto found = colours().find(op);
  return found == colours().end() ? "#000000" : found->second;
}

class Svg {
 public:
  Svg(const Axis& x, const Axis& y) : x_(x), y_(y) {
    text_ << std::fixed << std::setprecision(1)
          << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 760 500\" font-family=\"sans-serif\" "
             "font-size=\"12\">\n<rect width=\"760\" height=\"500\" fill=\"white\"/>\n";
  }
  void line(double x0, double y0, double x1, double y1, const char* stroke, double width) {
    text_ << "<line x1=\"" << px(x0) << "\" y1=\"" << py(y0) << "\" x2=\"" << px(x1) << "\" y2=\"" << py(y1)
          << "\" stroke=\"" << stroke << "\" stroke-width=\"" << width << "\"/>\n";
  }
  void dot(double x, double y, const std::string& fill, const std::string& title) {
    text_ << "<circle cx=\"" << px(x) << "\" cy=\"" << py(y) << "\" r=\"4\" fill=\"" << fill
          << "\" fill-opacity=\"0.8\"><title>" << title << "</title></circle>\n";
  }
  // In pixels.
  void label(double x, double y, const std::string& words, const char* anchor = "start",
             const std::string& fill = "#333333") {
    text_ << "<text x=\"" << x << "\" y=\"" << y << "\" text-anchor=\"" << anchor << "\" fill=\"" << fill
          << "\">" << words << "</text>\n";
  }
  double px(double x) const { return kLeft + x_.at(x) * kWidth; }
  double py(double y) const { return kTop + (1 - y_.at(y)) * kHeight; }
  std::string finish() {
    text_ << "</svg>\n";
    return text_.str();
  }

 private:
  Axis x_, y_;
  std::ostringstream text_;
};

std::string short_number(double value) {
  std::ostringstream text;
  text << std::setprecision(value < 100 ? 3 : 4) << value;
  return text.str();
}

}  // namespace

std::string roofline_svg(const std::vector<nlohmann::ordered_json>& rows) {
  std::vector<double> peaks{1e-3};
  std::vector<double> bandwidths{1e-3};
  double least_x = 1, most_x = 1000, least_y = 1;
  for (const auto& row : rows) {
    // One thread's limits would not bound two threads' rows: each row counts per thread.
    peaks.push_back(row["peak_gflops"].get<double>() / row["threads"].get<double>());
    bandwidths.push_back(row["read_gbytes"].get<double>() / row["threads"].get<double>());
    least_x = std::min(least_x, row["intensity"].get<double>());
    most_x = std::max(most_x, row["intensity"].get<double>());
    least_y = std::min(least_y, row["gflops"].get<double>() / row["threads"].get<double>());
  }
  if (rows.empty()) return Svg({0, 1}, {0, 1}).finish();
  peaks.erase(peaks.begin());
  bandwidths.erase(bandwidths.begin());
  const double peak = median(peaks);
  const double bandwidth = median(bandwidths);
  const Axis x{std::floor(std::log10(least_x)), std::ceil(std::log10(most_x))};
  const Axis y{std::floor(std::log10(std::min(least_y, 1.0))), std::ceil(std::log10(peak * 1.2))};
  Svg svg(x, y);
  for (double power = x.low; power <= x.high; ++power) {
    const double value = std::pow(10, power);
    svg.line(value, std::pow(10, y.low), value, std::pow(10, y.high), "#DDDDDD", 1);
    svg.label(svg.px(value), kTop + kHeight + 18, short_number(value), "middle");
  }
  for (double power = y.low; power <= y.high; ++power) {
    const double value = std::pow(10, power);
    svg.line(std::pow(10, x.low), value, std::pow(10, x.high), value, "#DDDDDD", 1);
    svg.label(kLeft - 8, svg.py(value) + 4, short_number(value), "end");
  }
  // Where the slope of the bandwidth leaves the picture below, the line begins later.
  const double ridge = peak / bandwidth;
  const double from = std::max(std::pow(10, x.low), std::pow(10, y.low) / bandwidth);
  if (from < ridge) svg.line(from, from * bandwidth, ridge, peak, "#333333", 2);
  svg.line(std::max(ridge, std::pow(10, x.low)), peak, std::pow(10, x.high), peak, "#333333", 2);
  svg.label(kLeft + kWidth - 4, svg.py(peak) - 6, "multiply-add peak, " + short_number(peak) + " GFLOP/s",
            "end");
  const double middle = std::sqrt(from * ridge);
  svg.label(svg.px(middle) + 14, svg.py(middle * bandwidth) + 44,
            "read bandwidth, " + short_number(bandwidth) + " GB/s");
  for (const auto& row : rows) {
    const std::string op = row["op"];
    std::ostringstream title;
    title << op << ", " << row["mask"].get<std::string>() << ", " << row["dtype"].get<std::string>() << ", "
          << row["Hq"] << "/" << row["Hkv"] << " heads, " << row["Lq"] << " x " << row["Lk"] << ", D "
          << row["Dk"] << ", threads " << row["threads"] << ": " << short_number(row["gflops"]) << " GFLOP/s";
    svg.dot(row["intensity"], row["gflops"].get<double>() / row["threads"].get<double>(), colour(op),
            title.str());
  }
  double at = kLeft;
  for (const auto& [op, fill] : colours()) {
    svg.label(at, kTop - 12, "&#9679; " + op, "start", fill);
    at += 40.0 + 8.0 * static_cast<double>(op.size());
  }
  svg.label(kLeft + kWidth / 2, kTop + kHeight + 40, "operations per byte that must move", "middle");
  svg.label(kLeft, kTop + kHeight + 58, "GFLOP/s of a thread; a dot's title says what it is", "start");
  return svg.finish();
}

}  // namespace regard::bench

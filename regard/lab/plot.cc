#include "regard/lab/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <stdexcept>

namespace regard::lab {
namespace {

using io::Canvas;
using io::Color;

constexpr int64_t kWidth = 960;
constexpr int64_t kHeight = 520;  // of a plot
constexpr int64_t kLeft = 110, kRight = 30, kTop = 60, kBottom = 110;

constexpr Color kInk = {60, 60, 60};
constexpr Color kGrid = {225, 225, 225};
// Okabe and Ito's colours, told apart by colour-blind readers too.
constexpr Color kColors[] = {{0, 114, 178}, {213, 94, 0},   {0, 158, 115}, {204, 121, 167},
                             {230, 159, 0}, {86, 180, 233}, {0, 0, 0},     {240, 228, 66}};

Color color_of(size_t curve) {
  return kColors[curve % std::size(kColors)];
}

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

struct Axis {
  double low = 0, high = 1;
  bool logarithmic = false;

  double part(double value) const {
    return logarithmic ? (std::log(value) - std::log(low)) / (std::log(high) - std::log(low))
                       : (value - low) / (high - low);
  }
  bool shows(double value) const { return std::isfinite(value) && (!logarithmic || value > 0); }

  static Axis around(const std::vector<double>& values, bool logarithmic, bool from_zero) {
    Axis axis;
    axis.logarithmic = logarithmic;
    axis.low = INFINITY;
    axis.high = -INFINITY;
    for (const double value : values) {
      if (!axis.shows(value)) continue;
      axis.low = std::min(axis.low, value);
      axis.high = std::max(axis.high, value);
    }
    if (!(axis.low <= axis.high)) axis.low = axis.high = 1;
    if (from_zero && !logarithmic) {
      axis.low = std::min(axis.low, 0.0);
      axis.high = std::max(axis.high, 0.0);
    }
    if (axis.low == axis.high) {
      axis.high = logarithmic ? 2 * axis.low : axis.low + 1;
    }
    if (!logarithmic && from_zero) axis.high += 0.05 * (axis.high - axis.low);
    return axis;
  }
};

class Drawing {
 public:
  Drawing(Canvas& canvas, const Plot& plot, int64_t top) : canvas_(canvas), plot_(plot), top_(top) {}

  void draw() {
    std::vector<double> xs, ys;
    for (const Curve& curve : plot_.curves) {
      xs.insert(xs.end(), curve.x.begin(), curve.x.end());
      ys.insert(ys.end(), curve.y.begin(), curve.y.end());
    }
    x_ = Axis::around(xs, plot_.log_x, false);
    y_ = Axis::around(ys, plot_.log_y, true);
    canvas_.text(kLeft, top_ + 12, plot_.title, kInk);
    legend();
    for (const double tick : ticks(y_.low, y_.high, y_.logarithmic)) {
      canvas_.line(kLeft, y(tick), kWidth - kRight, y(tick), kGrid);
      const std::string text = number_text(tick);
      canvas_.text(kLeft - 8 - Canvas::text_width(text), std::lround(y(tick)) - 7, text, kInk);
    }
    plot_.bars.empty() ? lines() : bars();
    canvas_.line(kLeft, plot_top(), kLeft, plot_bottom(), kInk);
    canvas_.line(kLeft, plot_bottom(), kWidth - kRight, plot_bottom(), kInk);
    canvas_.text((kLeft + kWidth - kRight - Canvas::text_width(plot_.x_label)) / 2, plot_bottom() + 34,
                 plot_.x_label, kInk);
    canvas_.text(8, (plot_top() + plot_bottom() + Canvas::text_width(plot_.y_label)) / 2, plot_.y_label, kInk,
                 2, true);
  }

 private:
  int64_t plot_top() const { return top_ + kTop; }
  int64_t plot_bottom() const { return top_ + kHeight - kBottom; }
  double x(double value) const { return kLeft + x_.part(value) * (kWidth - kLeft - kRight); }
  double y(double value) const {
    return static_cast<double>(plot_bottom()) -
           y_.part(value) * static_cast<double>(plot_bottom() - plot_top());
  }

  void legend() {
    int64_t at = kLeft;
    int64_t row = top_ + 36;
    for (size_t c = 0; c < plot_.curves.size(); ++c) {
      const std::string& label = plot_.curves[c].label;
      const int64_t scale = plot_.curves.size() > 4 ? 1 : 2;
      const int64_t width = Canvas::text_width(label, scale) + 40;
      if (at + width > kWidth && at > kLeft) {
        at = kLeft;
        row += 10;
      }
      canvas_.box(at, row + 1, 14, 5 * scale + 2, color_of(c));
      canvas_.text(at + 20, row + 1, label, kInk, scale);
      at += width;
    }
  }

  void lines() {
    for (const double tick : ticks(x_.low, x_.high, x_.logarithmic)) {
      const auto at = static_cast<int64_t>(std::lround(x(tick)));
      canvas_.line(x(tick), static_cast<double>(plot_bottom()), x(tick),
                   static_cast<double>(plot_bottom() + 5), kInk);
      const std::string text = number_text(tick);
      canvas_.text(at - Canvas::text_width(text) / 2, plot_bottom() + 10, text, kInk);
    }
    for (size_t c = 0; c < plot_.curves.size(); ++c) {
      const Curve& curve = plot_.curves[c];
      const size_t points = std::min(curve.x.size(), curve.y.size());
      for (size_t i = 0; i < points; ++i) {
        if (!shows(curve, i)) continue;
        if (i > 0 && shows(curve, i - 1))
          canvas_.line(x(curve.x[i - 1]), y(curve.y[i - 1]), x(curve.x[i]), y(curve.y[i]), color_of(c), 3);
        if (points <= 24)
          canvas_.box(std::lround(x(curve.x[i])) - 4, std::lround(y(curve.y[i])) - 4, 9, 9, color_of(c));
      }
    }
  }

  bool shows(const Curve& curve, size_t i) const { return x_.shows(curve.x[i]) && y_.shows(curve.y[i]); }

  void bars() {
    const auto groups = static_cast<int64_t>(plot_.bars.size());
    const int64_t room = (kWidth - kLeft - kRight) / groups;
    const auto of_group = static_cast<int64_t>(std::max<size_t>(plot_.curves.size(), 1));
    const int64_t bar = std::max<int64_t>(1, room * 8 / 10 / of_group);
    const double base = y_.logarithmic ? static_cast<double>(plot_bottom()) : y(0);
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t left = kLeft + g * room + room / 10;
      for (size_t c = 0; c < plot_.curves.size(); ++c) {
        const auto& values = plot_.curves[c].y;
        if (static_cast<size_t>(g) >= values.size() || !y_.shows(values[static_cast<size_t>(g)])) continue;
        const double end = y(values[static_cast<size_t>(g)]);
        canvas_.box(left + static_cast<int64_t>(c) * bar, std::lround(std::min(base, end)), bar - 1,
                    std::max<int64_t>(1, std::lround(std::abs(base - end))), color_of(c));
      }
      name_group(plot_.bars[static_cast<size_t>(g)], kLeft + g * room, room);
    }
  }

  // A name below its group, in as many lines as it needs.
  void name_group(const std::string& name, int64_t left, int64_t room) {
    const int64_t scale = Canvas::text_width(name) <= room ? 2 : 1;
    const auto fits = static_cast<size_t>(std::max<int64_t>(1, room / Canvas::text_width("x", scale) - 1));
    int64_t row = plot_bottom() + 10;
    for (size_t begin = 0; begin < name.size();) {
      size_t length = std::min(fits, name.size() - begin);
      if (begin + length < name.size()) {
        const size_t space = name.rfind(' ', begin + length);
        if (space != std::string::npos && space > begin) length = space - begin;
      }
      const std::string line = name.substr(begin, length);
      canvas_.text(left + (room - Canvas::text_width(line, scale)) / 2, row, line, kInk, scale);
      row += 9 * scale;
      begin += length;
      while (begin < name.size() && name[begin] == ' ') ++begin;
    }
  }

  Canvas& canvas_;
  const Plot& plot_;
  int64_t top_;
  Axis x_, y_;
};

}  // namespace

std::vector<double> ticks(double low, double high, bool logarithmic) {
  std::vector<double> out;
  const auto inside = [&](double value) {
    const double slack = 1e-9 * (high - low);
    if (value >= low - slack && value <= high + slack) out.push_back(value);
  };
  if (logarithmic) {
    const double first = std::floor(std::log10(low));
    const double last = std::ceil(std::log10(high));
    const double every = std::max(1.0, std::ceil((last - first) / 8));
    for (double power = first; power <= last; power += every) inside(std::pow(10.0, power));
    if (out.size() >= 3) return out;
    out.clear();
    for (double power = first; power <= last; ++power) {
      for (const double times : {1, 2, 5}) inside(times * std::pow(10.0, power));
    }
    return out;
  }
  const double rough = (high - low) / 5;
  double step = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double times : {2.0, 2.5, 2.0}) {  // 1, 2, 5, 10
    if (step >= rough) break;
    step *= times;
  }
  for (double index = std::ceil(low / step - 1e-9); index * step <= high + 1e-9 * step; ++index)
    inside(index * step + 0.0);  // never -0
  return out;
}

Canvas draw(const std::vector<Plot>& plots) {
  if (plots.empty()) throw std::invalid_argument("draw: there are no plots");
  Canvas canvas(kWidth, static_cast<int64_t>(plots.size()) * kHeight);
  for (size_t i = 0; i < plots.size(); ++i)
    Drawing(canvas, plots[i], static_cast<int64_t>(i) * kHeight).draw();
  return canvas;
}

}  // namespace regard::lab

#include "regard/io/canvas.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace regard::io {
namespace {

constexpr int64_t kLetterWidth = 6;
constexpr int64_t kLetterHeight = 7;

// The letters from ' ' to '~': seven rows each, from the top, a row's five dots as a digit of base 32.
constexpr std::string_view kLetters =
    "0000000"
    "4444004"
    "AAA0000"
    "AAVAVAA"
    "4FKE5U4"
    "OP248J3"
    "CIK8LID"
    "C480000"
    "2488842"
    "8422248"
    "04LEL40"
    "044V440"
    "0000C48"
    "000V000"
    "00000CC"
    "01248G0"
    "EHJLPHE"
    "4C4444E"
    "EH168GV"
    "V2421HE"
    "26AIV22"
    "VGU11HE"
    "68GUHHE"
    "V124888"
    "EHHEHHE"
    "EHHF12C"
    "0CC0CC0"
    "0CC0C48"
    "248G842"
    "00V0V00"
    "8421248"
    "EH12404"
    "EH1DLLE"
    "EHHVHHH"
    "UHHUHHU"
    "EHGGGHE"
    "SIHHHIS"
    "VGGUGGV"
    "VGGUGGG"
    "EHGNHHF"
    "HHHVHHH"
    "E44444E"
    "72222IC"
    "HIKOKIH"
    "GGGGGGV"
    "HRLLHHH"
    "HHPLJHH"
    "EHHHHHE"
    "UHHUGGG"
    "EHHHLID"
    "UHHUKIH"
    "FGGE11U"
    "V444444"
    "HHHHHHE"
    "HHHHHA4"
    "HHHLLLA"
    "HHA4AHH"
    "HHHA444"
    "V1248GV"
    "E88888E"
    "0G84210"
    "E22222E"
    "4AH0000"
    "000000V"
    "8420000"
    "00E1FHF"
    "GGMPHHU"
    "00EGGHE"
    "11DJHHF"
    "00EHVGE"
    "698S888"
    "0FHHF1E"
    "GGMPHHH"
    "40C444E"
    "20622IC"
    "GGIKOKI"
    "C44444E"
    "00QLLHH"
    "00MPHHH"
    "00EHHHE"
    "00UHUGG"
    "00DJF11"
    "00MPGGG"
    "00EGE1U"
    "88S8896"
    "00HHHJD"
    "00HHHA4"
    "00HHLLA"
    "00HA4AH"
    "00HHF1E"
    "00V248V"
    "2448442"
    "4444444"
    "8442448"
    "008L200";
static_assert(kLetters.size() == 95 * kLetterHeight);

// The dots of a letter's row, the leftmost in bit 4.
int dots(char letter, int64_t row) {
  const char digit = kLetters[static_cast<size_t>((letter - ' ') * kLetterHeight + row)];
  return digit <= '9' ? digit - '0' : digit - 'A' + 10;
}

// One character for each code point.
std::string ascii(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xC0U) == 0x80U) continue;  // goes on with a code point
    out += byte >= 0x20 && byte < 0x7F ? c : '?';
  }
  return out;
}

}  // namespace

Canvas::Canvas(int64_t width, int64_t height, Color background) : width_(width), height_(height) {
  if (width < 1 || height < 1 || width > 65535 || height > 65535) {
    throw std::invalid_argument("Canvas: the size is " + std::to_string(width) + " x " +
                                std::to_string(height) + "; each side must be 1 to 65535");
  }
  rgb_.resize(static_cast<size_t>(3 * width * height));
  box(0, 0, width, height, background);
}

void Canvas::point(int64_t x, int64_t y, Color color) {
  if (x < 0 || y < 0 || x >= width_ || y >= height_) return;
  std::copy(color.begin(), color.end(), rgb_.begin() + 3 * (y * width_ + x));
}

void Canvas::box(int64_t x, int64_t y, int64_t width, int64_t height, Color color) {
  const int64_t right = std::min(x + width, width_);
  const int64_t bottom = std::min(y + height, height_);
  for (int64_t row = std::max<int64_t>(y, 0); row < bottom; ++row) {
    for (int64_t column = std::max<int64_t>(x, 0); column < right; ++column) point(column, row, color);
  }
}

void Canvas::line(double x0, double y0, double x1, double y1, Color color, int64_t thickness) {
  if (!std::isfinite(x0) || !std::isfinite(y0) || !std::isfinite(x1) || !std::isfinite(y1)) return;
  // What lies far outside takes no time.
  const double limit = 4.0 * static_cast<double>(width_ + height_);
  for (double* value : {&x0, &y0, &x1, &y1}) *value = std::clamp(*value, -limit, limit);
  const double steps = std::max(1.0, std::ceil(std::max(std::abs(x1 - x0), std::abs(y1 - y0))));
  for (double step = 0; step <= steps; ++step) {
    const double part = step / steps;
    box(std::lround(x0 + part * (x1 - x0)) - thickness / 2,
        std::lround(y0 + part * (y1 - y0)) - thickness / 2, thickness, thickness, color);
  }
}

void Canvas::text(int64_t x, int64_t y, std::string_view text, Color color, int64_t scale, bool upwards) {
  const std::string letters = ascii(text);
  for (size_t i = 0; i < letters.size(); ++i) {
    for (int64_t row = 0; row < kLetterHeight; ++row) {
      for (int64_t column = 0; column < kLetterWidth - 1; ++column) {
        if ((dots(letters[i], row) >> (4 - column) & 1) == 0) continue;
        const int64_t along = (static_cast<int64_t>(i) * kLetterWidth + column) * scale;
        if (upwards) {
          box(x + row * scale, y - along - scale, scale, scale, color);
        } else {
          box(x + along, y + row * scale, scale, scale, color);
        }
      }
    }
  }
}

int64_t Canvas::text_width(std::string_view text, int64_t scale) {
  return static_cast<int64_t>(ascii(text).size()) * kLetterWidth * scale;
}

}  // namespace regard::io

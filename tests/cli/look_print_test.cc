// What is emitted, cell by cell: nothing passes the terminal's width, and grids stay aligned for wide
// characters.
#include "regard/cli/look_print.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "regard/cli/look_map.h"
#include "regard/lens/make_report.h"
#include "tests/cli/lines.h"
#include "tests/lens/made.h"

namespace regard::cli {
namespace {

using lens::made::random_layer;

const std::vector<std::string> kChinese{"<s>", "我", "吃", "了", "一个", "苹果",
                                        "，",  "你", "喝", "茶", "</s>"};

struct Made {
  lens::Recording recording;
  lens::Report report;
};

Made make(const std::vector<std::string>& words, bool causal, int64_t heads = 12,
          const lens::ReportOptions& options = {}) {
  const auto n = static_cast<int64_t>(words.size());
  std::vector<lens::RecordedLayer> layers;
  for (int64_t l = 0; l < 4; ++l) {
    layers.push_back(
        random_layer(heads, heads, n, 8, causal, static_cast<uint32_t>(l * 10), lens::Precision::f32, l));
  }
  Made out;
  out.recording = lens::made::recording(words, std::move(layers), causal);
  for (size_t i = 0; i < words.size(); ++i) {
    const bool special = words[i].starts_with("<") && words[i].ends_with(">");
    out.recording.tokens[i].special = out.recording.words[i].special = special;
  }
  out.report = lens::make_report(out.recording, options);
  return out;
}

void print_everything(std::ostream& out, const Terminal& terminal, const Made& made) {
  print_header(out, terminal, made.report);
  print_grid(out, terminal, made.report);
  print_focus(out, terminal, made.report);
  print_received(out, terminal, made.report);
  print_map(out, terminal, made.recording, made.report, 1, 2);
  print_trace(out, terminal, made.report, lens::trace(made.recording, 1, 2, 4));
  print_comparison(out, terminal, made.report, made.report);
  print_caution(out, terminal);
}

Terminal terminal_of(int64_t width, bool color, bool unicode) {
  Terminal terminal;
  terminal.width = width;
  terminal.color = color;
  terminal.unicode = unicode;
  return terminal;
}

TEST(LookPrint, NoLinePassesTheWidth) {
  std::vector<std::string> long_words = kChinese;
  long_words.push_back("Donaudampfschifffahrtsgesellschaftskapitänspatentinhaberversammlungsprotokoll");
  for (int i = 0; i < 60; ++i) long_words.push_back(std::string("word").append(std::to_string(i)));
  for (const auto& words : {kChinese, long_words}) {
    for (const bool causal : {false, true}) {
      const Made made = make(words, causal);
      for (const int64_t width : {40, 80, 132}) {
        for (const bool color : {false, true}) {
          for (const bool unicode : {false, true}) {
            std::ostringstream out;
            print_everything(out, terminal_of(width, color, unicode), made);
            for (const std::string& line : lines_of(out.str())) {
              EXPECT_LE(visible_width(line), width) << line;
              if (!unicode) {
                EXPECT_TRUE(std::all_of(line.begin(), line.end(), [](unsigned char c) { return c < 0x80; }))
                    << line;
              }
              if (!color) {
                EXPECT_EQ(line.find('\033'), std::string::npos) << line;
              }
            }
          }
        }
      }
    }
  }
}

// The cell at which a text begins in a line without colour.
int64_t cell_of(const std::string& line, const std::string& text) {
  const size_t at = line.find(text);
  return at == std::string::npos ? -1 : static_cast<int64_t>(text::display_width(line.substr(0, at)));
}

TEST(LookPrint, AChineseMapStaysAlignedAtEightyColumns) {
  const Made made = make(kChinese, false);
  std::ostringstream out;
  print_map(out, terminal_of(80, true, true), made.recording, made.report, 0, 0);
  const std::vector<std::string> lines = lines_of(out.str());
  // Every row of the map: 14 cells of name, a space, two cells for each of the 11 columns.
  int64_t rows = 0;
  for (const std::string& line : lines) {
    if (line.find(";48;5;") == std::string::npos) continue;
    size_t cells = 0;
    for (size_t at = line.find(";48;5;"); at != std::string::npos; at = line.find(";48;5;", at + 1)) ++cells;
    if (line.find("the largest") != std::string::npos) continue;
    EXPECT_EQ(cells, kChinese.size()) << line;
    const size_t first = line.find("\033[97;48;5;") < line.find("\033[30;48;5;") ? line.find("\033[97;48;5;")
                                                                                 : line.find("\033[30;48;5;");
    EXPECT_EQ(visible_width(line.substr(0, first)), 15) << line;
    ++rows;
  }
  EXPECT_EQ(rows, static_cast<int64_t>(kChinese.size()));
}

TEST(LookPrint, ColumnNamesStandAboveTheirColumns) {
  const Made made = make(kChinese, false);
  std::ostringstream out;
  print_map(out, terminal_of(80, false, true), made.recording, made.report, 0, 0);
  const std::vector<std::string> lines = lines_of(out.str());
  // Column c begins at cell 15 + 2c; its name's last character stands in the line above the map.
  bool found = false;
  for (const std::string& line : lines) {
    if (line.find("果") == std::string::npos || line.find("茶") == std::string::npos) continue;
    found = true;
    EXPECT_EQ(cell_of(line, "我"), 15 + 2 * 1) << line;
    EXPECT_EQ(cell_of(line, "果"), 15 + 2 * 5) << line;
    EXPECT_EQ(cell_of(line, "茶"), 15 + 2 * 9) << line;
    break;
  }
  EXPECT_TRUE(found);
}

TEST(LookPrint, TheGridHasACellForEachHeadAtItsPlace) {
  const Made made = make(kChinese, false);
  std::ostringstream out;
  print_grid(out, terminal_of(80, false, true), made.report);
  const std::vector<std::string> lines = lines_of(out.str());
  const auto numbers = std::find_if(lines.begin(), lines.end(),
                                    [](const auto& line) { return line.find("H11") != std::string::npos; });
  ASSERT_NE(numbers, lines.end());
  for (size_t row = 0; row < 4; ++row) {
    const std::string& line = *(numbers + 1 + static_cast<int64_t>(row));
    for (size_t head = 0; head < 12; ++head) {
      const lens::HeadReport& cell = made.report.grid[row * 12 + head];
      const std::string code = label_code(cell.label);
      // Cell of head h begins at 5 + 6h.
      size_t at = 0;
      while (at < line.size() && static_cast<int64_t>(text::display_width(line.substr(0, at))) <
                                     5 + 6 * static_cast<int64_t>(head)) {
        do ++at;
        while (at < line.size() && (static_cast<unsigned char>(line[at]) & 0xC0) == 0x80);
      }
      EXPECT_EQ(line.substr(at, code.size()), code) << line;
    }
  }
}

TEST(LookPrint, ManyHeadsAreSplitIntoPartsThatFit) {
  const Made made = make(kChinese, true, 32);
  std::ostringstream out;
  print_grid(out, terminal_of(80, false, true), made.report);
  for (const std::string& line : lines_of(out.str())) EXPECT_LE(visible_width(line), 80);
  EXPECT_THAT(out.str(), testing::HasSubstr("H31"));
}

TEST(LookPrint, TheMixtureLineSumsToOneAsPrinted) {
  const Made made = make(kChinese, false);
  std::string text;
  for (const std::string& line :
       mixture_lines(terminal_of(80, false, true), made.report, made.report.focus.mean_mixture, 76)) {
    text += line + "\n";
  }
  // Numbers after "=" and "+" only: those after "resting on" name the parts of the sinks.
  double sum = 0;
  for (size_t at = 0; at + 2 < text.size(); ++at) {
    if ((text[at] == '=' || text[at] == '+') && text[at + 1] == ' ') sum += std::stod(text.substr(at + 2, 4));
  }
  EXPECT_NEAR(sum, 1, 1e-9) << text;
  EXPECT_THAT(text, testing::HasSubstr("resting on"));
}

TEST(LookPrint, LongTextsArePooledIntoTheWidth) {
  const Made made = make(lens::made::words(500), true, 2);
  std::ostringstream out;
  print_map(out, terminal_of(80, false, true), made.recording, made.report, 0, 0);
  EXPECT_THAT(out.str(), testing::HasSubstr("the largest weight among 16 x 16"));
  for (const std::string& line : lines_of(out.str())) EXPECT_LE(visible_width(line), 80);
}

TEST(LookMap, PoolingKeepsTheLargestWeight) {
  const Made made = make(lens::made::words(50), true, 2);
  const PooledMap whole = pooled_map(made.recording, made.report, 0, 1, 100);
  const PooledMap pooled = pooled_map(made.recording, made.report, 0, 1, 10);
  EXPECT_EQ(whole.pool, 1);
  EXPECT_EQ(pooled.pool, 5);
  EXPECT_EQ(pooled.size, 10);
  EXPECT_EQ(pooled.largest, whole.largest);
  float largest = 0;
  for (int64_t i = 5; i < 10; ++i) {
    for (int64_t j = 0; j < 5; ++j) largest = std::max(largest, whole.cells[static_cast<size_t>(i * 50 + j)]);
  }
  EXPECT_EQ(pooled.cells[1 * 10 + 0], largest);
}

TEST(Terminal, LevelsBarsAndShadesAreMonotone) {
  const Terminal ascii = terminal_of(80, false, false);
  EXPECT_EQ(ascii.level(0), "0");
  EXPECT_EQ(ascii.level(1), "9");
  EXPECT_EQ(ascii.bar(0.5, 10), "#####");
  const Terminal unicode = terminal_of(80, false, true);
  EXPECT_EQ(unicode.level(0), "▁");
  EXPECT_EQ(unicode.level(1), "█");
  EXPECT_EQ(unicode.bar(1, 3), "███");
  EXPECT_EQ(visible_width(unicode.shade(0.5, 4)), 4);
}

TEST(Terminal, WrapsAtSpacesAndCutsWhatIsLonger) {
  const Terminal terminal = terminal_of(80, false, true);
  EXPECT_THAT(wrap(terminal, "one two three", 7, 2), testing::ElementsAre("one two", "  three"));
  for (const std::string& line : wrap(terminal, "苹果苹果苹果苹果 苹果", 9, 1))
    EXPECT_LE(visible_width(line), 9);
}

}  // namespace
}  // namespace regard::cli

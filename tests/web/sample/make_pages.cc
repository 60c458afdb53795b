// regard_sample_pages FOLDER: writes the pages that page_test.py opens, each with its numbers as JSON beside
// it.
#include <filesystem>
#include <fstream>
#include <iostream>

#include "regard/web/page.h"
#include "sample_report.h"

namespace {

using regard::web::testing::Sample;
using Json = nlohmann::json;

// Rows of weights in float64: all of a short text, a few of a long one.
Json numbers(const regard::lens::Report& report) {
  const auto tokens = static_cast<int64_t>(report.tokens.size());
  const int64_t step = tokens > 100 ? tokens / 5 : 1;
  Json heads = Json::array();
  for (const auto& head : report.carried) {
    const auto weights = regard::web::testing::sample_weights(report, head.layer, head.head);
    Json rows = Json::object();
    for (int64_t i = 0; i < tokens; i += step) {
      rows[std::to_string(i)] =
          std::vector<double>(weights.begin() + i * tokens, weights.begin() + (i + 1) * tokens);
    }
    heads.push_back({{"layer", head.layer}, {"head", head.head}, {"rows", std::move(rows)}});
  }
  Json focus = Json::array();
  for (const auto& head : report.focus.heads) {
    focus.push_back({{"layer", head.layer}, {"head", head.head}, {"weights", head.weights}});
  }
  return {{"tokens", report.tokens.size()},
          {"carried", std::move(heads)},
          {"focus_unit", report.focus.unit},
          {"focus", std::move(focus)}};
}

void write(const std::filesystem::path& folder, const std::string& name, const std::string& html,
           const Json& json) {
  std::ofstream(folder / (name + ".html"), std::ios::binary) << html;
  std::ofstream(folder / (name + ".json"), std::ios::binary) << json;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: regard_sample_pages FOLDER\n";
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  using regard::web::page;
  using regard::web::testing::sample_report;

  Sample words{.words = {"The", "animal", "didn", "##'", "##t", "cross", "the", "street", "because", "it",
                         "was", "too", "tired"},
               .focus = 10};
  const auto short_report = sample_report(words);
  write(folder, "short", page(short_report), numbers(short_report));

  words.words.back() = "wide";
  const auto other = sample_report(words);
  write(folder, "two", page(short_report, other), numbers(other));

  // Each with a word that its reader asked for.
  auto here = short_report;
  words.focus = 13;
  auto there = sample_report(words);
  here.focus.chosen_by_user = there.focus.chosen_by_user = true;
  write(folder, "two_words", page(here, there), numbers(here));

  const auto chinese =
      sample_report({.words = {"我", "吃", "了", "一个", "苹果"}, .focus = 5, .carried_heads = 3});
  write(folder, "chinese", page(chinese), numbers(chinese));

  const auto hostile =
      sample_report({.words = {"</script>", "<!--", "<img src=x onerror=\"document.title='broken'\">", "הילד",
                               "אכל", "&lt;b&gt;", " "},
                     .focus = 2});
  write(folder, "hostile", page(hostile), numbers(hostile));

  Sample text{.words = {},
              .layers = 4,
              .heads = 8,
              .kv_heads = 2,
              .head_size = 64,
              .causal = true,
              .special = false,
              .focus = 500,
              .carried_heads = 4};
  for (int i = 0; i < 1000; ++i) {
    std::string word = i % 7 == 3 ? "##w" : "w";
    text.words.push_back(word.append(std::to_string(i)));
  }
  const auto thousand = sample_report(text);
  write(folder, "thousand", page(thousand), numbers(thousand));
}

#include "regard/train/translation_score.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <unordered_map>

#include "regard/text/utf8.h"

namespace regard::train {
namespace {

constexpr size_t kWords = 4;       // the longest n-gram of BLEU
constexpr size_t kCharacters = 6;  // and of chrF

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_stop(char c) {
  return c == '.' || c == ',';
}

// What Python's str.split() splits at: Unicode's white space and the four separators of ASCII.
bool is_separator(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

// sacreBLEU's "Chinese" characters. Its table means to name U+20000-2A6D6 and U+2F800-2FA1D too, but the way
// it writes them covers U+2001-2A6D and U+2F81-2FA1 instead (dashes and quotes among them); equal figures
// need the same.
bool is_chinese(char32_t c) {
  struct Range {
    char32_t first, last;
  };
  static constexpr Range kRanges[] = {{0x2001, 0x2A6D}, {0x2E80, 0x2EFF}, {0x2F00, 0x2FDF}, {0x2FF0, 0x303F},
                                      {0x3100, 0x312F}, {0x31A0, 0x31BF}, {0x31C0, 0x31EF}, {0x3200, 0x33FF},
                                      {0x3400, 0x4DB5}, {0x4E00, 0x9FBB}, {0xF900, 0xFA2D}, {0xFA30, 0xFA6A},
                                      {0xFA70, 0xFAD9}, {0xFE10, 0xFE1F}, {0xFE30, 0xFE4F}, {0xFF00, 0xFFEF}};
  return std::any_of(std::begin(kRanges), std::end(kRanges),
                     [c](const Range& range) { return c >= range.first && c <= range.last; });
}

void check_utf8(std::string_view text) {
  if (text::find_invalid_utf8(text)) {
    throw std::invalid_argument("a sentence to be scored is not UTF-8: \"" + std::string(text.substr(0, 40)) +
                                "\"");
  }
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

// ASCII signs but . , - and ' are tokens of their own; so are . and , where a digit does not stand on both
// sides, and - after a digit. Four passes, each from left to right over what the one before left, as
// mteval-v13a makes them: "1,,2" and the like come out as there only so. Bytes beyond ASCII are no digits,
// which is all that is asked of them.
std::string western(std::string_view in) {
  std::string signs;
  for (const char c : in) {
    const bool sign = (c >= '!' && c <= '&') || (c >= '(' && c <= '+') || c == '/' ||
                      (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
    if (sign) signs += ' ';
    signs += c;
    if (sign) signs += ' ';
  }
  const auto pairs = [](const std::string& text, auto&& fits, std::string_view before,
                        std::string_view between, std::string_view after) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (i + 1 < text.size() && fits(text[i], text[i + 1])) {
        out.append(before) += text[i];
        out.append(between) += text[i + 1];
        out.append(after);
        ++i;
      } else {
        out += text[i];
      }
    }
    return out;
  };
  std::string out = pairs(
      signs, [](char a, char b) { return !is_digit(a) && is_stop(b); }, "", " ", " ");
  out = pairs(
      out, [](char a, char b) { return is_stop(a) && !is_digit(b); }, " ", " ", "");
  return pairs(
      out, [](char a, char b) { return is_digit(a) && b == '-'; }, "", " ", " ");
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> out;
  bool inside = false;
  text::for_each_code_point(text, [&](char32_t c, size_t at, size_t length) {
    if (is_separator(c)) {
      inside = false;
      return;
    }
    if (!inside) out.emplace_back();
    inside = true;
    out.back().append(text.substr(at, length));
  });
  return out;
}

std::vector<std::string> tokens(std::string_view sentence, BleuTokens how) {
  check_utf8(sentence);
  if (how == BleuTokens::spaces) return split(sentence);
  std::string text(sentence);
  if (how == BleuTokens::mteval_13a) {
    while (!text.empty() && is_separator(static_cast<unsigned char>(text.back())) && text.back() > 0)
      text.pop_back();
    replace_all(text, "<skipped>", "");
    replace_all(text, "-\n", "");
    replace_all(text, "\n", " ");
    if (text.find('&') != std::string::npos) {
      replace_all(text, "&quot;", "\"");
      replace_all(text, "&amp;", "&");
      replace_all(text, "&lt;", "<");
      replace_all(text, "&gt;", ">");
    }
    return split(western(" " + text + " "));
  }
  std::string apart;
  for (const std::string& word : split(sentence)) {
    if (!apart.empty()) apart += ' ';
    text::for_each_code_point(word, [&](char32_t c, size_t at, size_t length) {
      if (is_chinese(c)) apart += ' ';
      apart.append(word, at, length);
      if (is_chinese(c)) apart += ' ';
    });
  }
  return split(western(apart));
}

using Counts = std::unordered_map<std::string, int64_t>;

// N-grams of BLEU, counted; a space cannot be part of a token.
Counts word_grams(const std::vector<std::string>& words, size_t n) {
  Counts counts;
  for (size_t i = 0; i + n <= words.size(); ++i) {
    std::string gram = words[i];
    for (size_t j = 1; j < n; ++j) gram.append(" ").append(words[i + j]);
    ++counts[gram];
  }
  return counts;
}

// The characters without white space, and where each begins (one more at the end).
struct Characters {
  std::string text;
  std::vector<size_t> begin;
};

Characters characters(std::string_view sentence) {
  check_utf8(sentence);
  Characters out;
  text::for_each_code_point(sentence, [&](char32_t c, size_t at, size_t length) {
    if (is_separator(c)) return;
    out.begin.push_back(out.text.size());
    out.text.append(sentence.substr(at, length));
  });
  out.begin.push_back(out.text.size());
  return out;
}

Counts character_grams(const Characters& of, size_t n) {
  Counts counts;
  for (size_t i = 0; i + n < of.begin.size(); ++i)
    ++counts[of.text.substr(of.begin[i], of.begin[i + n] - of.begin[i])];
  return counts;
}

int64_t sum(const Counts& counts) {
  int64_t total = 0;
  for (const auto& [gram, count] : counts) total += count;
  return total;
}

int64_t matches(const Counts& a, const Counts& b) {
  int64_t total = 0;
  for (const auto& [gram, count] : a) {
    if (const auto found = b.find(gram); found != b.end()) total += std::min(count, found->second);
  }
  return total;
}

void check_sets(std::span<const std::string> translations,
                std::span<const std::vector<std::string>> references) {
  if (translations.size() != references.size() || translations.empty()) {
    throw std::invalid_argument("translations to be scored: " + std::to_string(translations.size()) +
                                ", sets of references: " + std::to_string(references.size()) +
                                "; both must be the same number, and not 0");
  }
  for (size_t i = 0; i < references.size(); ++i) {
    if (references[i].empty())
      throw std::invalid_argument("translation " + std::to_string(i) + " has no reference");
  }
}

// Of each order of n-grams: how many the translation has, how many the reference, how many both.
struct Matched {
  int64_t ours = 0, theirs = 0, both = 0;
};
using Statistics = std::array<Matched, kCharacters>;

double f_score(const Statistics& statistics) {
  constexpr double kBetaSquared = 4;
  double precision = 0;
  double recall = 0;
  for (const Matched& order : statistics) {
    if (order.ours == 0 || order.theirs == 0) continue;
    precision += static_cast<double>(order.both) / static_cast<double>(order.ours);
    recall += static_cast<double>(order.both) / static_cast<double>(order.theirs);
  }
  // Both are means over the orders that exist on both sides; their number cancels.
  const auto orders =
      static_cast<double>(std::count_if(statistics.begin(), statistics.end(), [](const Matched& order) {
        return order.ours > 0 && order.theirs > 0;
      }));
  if (precision + recall == 0) return 0;
  precision /= orders;
  recall /= orders;
  return 100 * (1 + kBetaSquared) * precision * recall / (kBetaSquared * precision + recall);
}

Statistics compare(const Characters& translation, const Characters& reference) {
  Statistics out;
  for (size_t n = 1; n <= kCharacters; ++n) {
    const Counts ours = character_grams(translation, n);
    const Counts theirs = character_grams(reference, n);
    // sacreBLEU: an order that the reference is too short for counts nothing of the translation either.
    out[n - 1] = {theirs.empty() ? 0 : sum(ours), sum(theirs), matches(ours, theirs)};
  }
  return out;
}

}  // namespace

std::string bleu_tokens(std::string_view sentence, BleuTokens how) {
  std::string out;
  for (const std::string& token : tokens(sentence, how)) {
    if (!out.empty()) out += ' ';
    out += token;
  }
  return out;
}

Bleu bleu(std::span<const std::string> translations, std::span<const std::vector<std::string>> references,
          BleuTokens how) {
  check_sets(translations, references);
  Bleu out;
  std::array<int64_t, kWords> correct{};
  std::array<int64_t, kWords> all{};
  for (size_t i = 0; i < translations.size(); ++i) {
    const std::vector<std::string> words = tokens(translations[i], how);
    const auto length = static_cast<int64_t>(words.size());
    std::array<Counts, kWords> most;  // of each n-gram, in any one reference
    int64_t closest = -1;
    for (const std::string& reference : references[i]) {
      const std::vector<std::string> theirs = tokens(reference, how);
      const auto other = static_cast<int64_t>(theirs.size());
      const int64_t gap = std::abs(other - length);
      const int64_t best = std::abs(closest - length);
      if (closest < 0 || gap < best || (gap == best && other < closest)) closest = other;
      for (size_t n = 1; n <= kWords; ++n) {
        for (const auto& [gram, count] : word_grams(theirs, n)) {
          int64_t& known = most[n - 1][gram];
          known = std::max(known, count);
        }
      }
    }
    out.length += length;
    out.reference_length += closest;
    for (size_t n = 1; n <= kWords; ++n) {
      const Counts ours = word_grams(words, n);
      all[n - 1] += sum(ours);
      correct[n - 1] += matches(ours, most[n - 1]);
    }
  }
  if (out.length < out.reference_length) {
    const double ratio = static_cast<double>(out.reference_length) / static_cast<double>(out.length);
    out.brevity_penalty = out.length == 0 ? 0 : std::exp(1 - ratio);
  }
  if (std::all_of(correct.begin(), correct.end(), [](int64_t count) { return count == 0; })) return out;
  double unmatched = 1;
  for (size_t n = 0; n < kWords && all[n] > 0; ++n) {
    if (correct[n] == 0) unmatched *= 2;
    const double counted = correct[n] == 0 ? 1 / unmatched : static_cast<double>(correct[n]);
    out.precisions[n] = 100 * counted / static_cast<double>(all[n]);
  }
  double logs = 0;
  for (const double precision : out.precisions) {
    if (precision == 0) return out;  // sentences all shorter than that many words
    logs += std::log(precision);
  }
  out.score = out.brevity_penalty * std::exp(logs / kWords);
  return out;
}

double chrf(std::span<const std::string> translations, std::span<const std::vector<std::string>> references) {
  check_sets(translations, references);
  Statistics all;
  for (size_t i = 0; i < translations.size(); ++i) {
    const Characters ours = characters(translations[i]);
    Statistics best;
    double best_score = -1;
    for (const std::string& reference : references[i]) {
      const Statistics here = compare(ours, characters(reference));
      const double score = f_score(here);
      if (score <= best_score) continue;
      best_score = score;
      best = here;
    }
    for (size_t n = 0; n < kCharacters; ++n) {
      all[n].ours += best[n].ours;
      all[n].theirs += best[n].theirs;
      all[n].both += best[n].both;
    }
  }
  return f_score(all);
}

}  // namespace regard::train

#include <algorithm>
#include <cctype>
#include <charconv>
#include <stdexcept>

#include "regard/io/suggest.h"
#include "regard/lens/make_report.h"
#include "regard/lens/units.h"

namespace regard::lens {
namespace {

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

std::vector<int64_t> occurrences(const Recording& recording, std::span<const Unit> units,
                                 const std::string& word) {
  std::vector<int64_t> exact, folded;
  for (size_t u = 0; u < units.size(); ++u) {
    const Token& token = recording.tokens[static_cast<size_t>(units[u].first)];
    const bool is_piece = units[u].count == 1 && token.piece == word;
    if (units[u].text == word) exact.push_back(static_cast<int64_t>(u));
    if (is_piece || lower(units[u].text) == lower(word)) folded.push_back(static_cast<int64_t>(u));
  }
  return exact.empty() ? folded : exact;
}

}  // namespace

int64_t find_unit(const Recording& recording, std::span<const Unit> units, const std::string& wanted) {
  if (const auto all = occurrences(recording, units, wanted); !all.empty()) return all.front();
  if (const size_t hash = wanted.rfind('#'); hash != std::string::npos && hash > 0) {
    const std::string word = wanted.substr(0, hash);
    const auto all = occurrences(recording, units, word);
    if (const auto nth = whole_number(std::string_view(wanted).substr(hash + 1)); nth && !all.empty()) {
      if (*nth >= 1 && *nth <= static_cast<int64_t>(all.size())) return all[static_cast<size_t>(*nth - 1)];
      throw std::invalid_argument("'" + word + "' occurs " + std::to_string(all.size()) + " times; '" +
                                  wanted + "' asks for occurrence " + std::to_string(*nth));
    }
  }
  if (const auto position = whole_number(wanted)) {
    if (*position >= 0 && *position < recording.size()) return unit_of_token(units, *position);
    throw std::invalid_argument("position " + wanted + " is outside the text, which has tokens 0 to " +
                                std::to_string(recording.size() - 1));
  }
  std::vector<std::string> known;
  for (const Unit& unit : units) known.push_back(unit.text);
  const std::string near = io::suggest(wanted, known);
  throw std::invalid_argument("the text has no word '" + wanted + "'" +
                              (near.empty() ? "; a word of the text or a position from 0 to " +
                                                  std::to_string(recording.size() - 1) + " is needed"
                                            : "; did you mean '" + near + "'?"));
}

}  // namespace regard::lens

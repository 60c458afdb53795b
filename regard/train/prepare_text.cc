#include "regard/train/prepare_text.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

#include "regard/io/error.h"
#include "regard/text/unicode.h"
#include "regard/text/utf8.h"
#include "regard/train/shuffle.h"

namespace regard::train {
namespace {

bool is_odd_space(char32_t c) {
  return c == 0xA0 || c == 0x202F || c == 0x2009;
}

char32_t plain(char32_t c, bool straight_quotes) {
  if (!straight_quotes) return is_odd_space(c) ? ' ' : c;
  if (c == 0x2018 || c == 0x2019) return '\'';
  if (c == 0x201C || c == 0x201D) return '"';
  return is_odd_space(c) ? ' ' : c;
}

void check_utf8(std::string_view text, const std::string& source) {
  const auto bad = text::find_invalid_utf8(text);
  if (!bad) return;
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(*bad), '\n');
  io::fail(source + " line " + std::to_string(line), "not valid UTF-8");
}

// Calls visit(line, number) for each line, without its end.
template <class Visit>
void for_each_line(std::string_view text, Visit&& visit) {
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    visit(line, ++number);
  }
}

int64_t words(std::string_view sentence) {
  return sentence.empty() ? 0 : 1 + std::count(sentence.begin(), sentence.end(), ' ');
}

// Disjoint sets of the numbers 0 to n - 1.
class Groups {
 public:
  explicit Groups(size_t count) : parent_(count) { std::iota(parent_.begin(), parent_.end(), size_t{0}); }
  size_t of(size_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void join(size_t a, size_t b) { parent_[std::max(of(a), of(b))] = std::min(of(a), of(b)); }

 private:
  std::vector<size_t> parent_;
};

// The pairs of each group, groups in the order of their first pair.
std::vector<std::vector<size_t>> grouped(const std::vector<SentencePair>& pairs) {
  Groups groups(pairs.size());
  std::unordered_map<std::string, size_t> first_source, first_target;
  for (size_t i = 0; i < pairs.size(); ++i) {
    groups.join(i, first_source.emplace(bare_sentence(pairs[i].source), i).first->second);
    groups.join(i, first_target.emplace(bare_sentence(pairs[i].target), i).first->second);
  }
  std::map<size_t, std::vector<size_t>> by_root;
  for (size_t i = 0; i < pairs.size(); ++i) by_root[groups.of(i)].push_back(i);
  std::vector<std::vector<size_t>> out;
  for (auto& [root, members] : by_root) out.push_back(std::move(members));
  return out;
}

std::vector<WithReferences> with_references(const std::vector<SentencePair>& pairs,
                                            std::vector<size_t> members) {
  std::sort(members.begin(), members.end());
  std::vector<WithReferences> out;
  std::unordered_map<std::string_view, size_t> place;
  for (const size_t i : members) {
    const auto [found, is_new] = place.emplace(pairs[i].source, out.size());
    if (is_new) out.push_back({pairs[i].source, {}});
    out[found->second].targets.push_back(pairs[i].target);
  }
  return out;
}

}  // namespace

std::string clean_sentence(std::string_view sentence, bool straight_quotes) {
  std::string out;
  bool space = false;
  text::for_each_code_point(text::to_nfc(sentence), [&](char32_t c, size_t, size_t) {
    const char32_t kept = plain(c, straight_quotes);
    if (text::is_space(kept)) {
      space = !out.empty();
      return;
    }
    if (space) out += ' ';
    space = false;
    text::append_utf8(kept, out);
  });
  return out;
}

std::string bare_sentence(std::string_view sentence) {
  std::string out;
  text::for_each_code_point(text::to_nfkc_folded(sentence), [&](char32_t c, size_t, size_t) {
    if (text::is_letter(c) || text::is_number(c)) text::append_utf8(c, out);
  });
  return out;
}

std::vector<SentencePair> read_pairs(std::string_view tsv, const std::string& source,
                                     const PairOptions& options) {
  check_utf8(tsv, source);
  if (tsv.starts_with("\xEF\xBB\xBF")) tsv.remove_prefix(3);
  std::vector<SentencePair> out;
  std::unordered_set<std::string> seen;
  for_each_line(tsv, [&](std::string_view line, int64_t number) {
    if (line.empty()) return;
    const size_t tab = line.find('\t');
    if (tab == std::string_view::npos)
      io::fail(source + " line " + std::to_string(number),
               "has no tab between a sentence and its translation");
    const std::string_view rest = line.substr(tab + 1);
    SentencePair pair{clean_sentence(line.substr(0, tab), options.straight_quotes),
                      clean_sentence(rest.substr(0, rest.find('\t')), options.straight_quotes)};
    if (pair.source.empty() || pair.target.empty()) return;
    if (options.most_source_words > 0 && words(pair.source) > options.most_source_words) return;
    if (options.most_target_words > 0 && words(pair.target) > options.most_target_words) return;
    if (seen.insert(pair.source + '\t' + pair.target).second) out.push_back(std::move(pair));
  });
  return out;
}

PairSplit split_pairs(const std::vector<SentencePair>& pairs, int64_t sources, uint64_t seed) {
  const std::vector<std::vector<size_t>> groups = grouped(pairs);
  std::mt19937_64 generator = generator_of(seed, 0);
  const std::vector<int64_t> order = shuffled(static_cast<int64_t>(groups.size()), generator);
  std::vector<size_t> held_out[2];
  int64_t left[2] = {sources, sources};
  std::vector<bool> taken(pairs.size(), false);
  for (const int64_t g : order) {
    const std::vector<size_t>& members = groups[static_cast<size_t>(g)];
    std::set<std::string_view> different;
    for (const size_t i : members) different.insert(pairs[i].source);
    const auto size = static_cast<int64_t>(different.size());
    for (size_t part = 0; part < 2; ++part) {
      if (size > left[part]) continue;
      left[part] -= size;
      for (const size_t i : members) {
        held_out[part].push_back(i);
        taken[i] = true;
      }
      break;
    }
    if (left[0] == 0 && left[1] == 0) break;
  }
  if (left[0] > 0 || left[1] > 0)
    throw std::invalid_argument("split_pairs: " + std::to_string(pairs.size()) + " pairs do not hold twice " +
                                std::to_string(sources) + " sources that can be kept apart");
  PairSplit split;
  split.valid = with_references(pairs, held_out[0]);
  split.test = with_references(pairs, held_out[1]);
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (!taken[i]) split.train.push_back(pairs[i]);
  }
  return split;
}

std::string to_tsv(const std::vector<SentencePair>& pairs) {
  std::string out;
  for (const SentencePair& pair : pairs) out += pair.source + '\t' + pair.target + '\n';
  return out;
}

std::string to_tsv(const std::vector<WithReferences>& sentences) {
  std::string out;
  for (const WithReferences& sentence : sentences) {
    out += sentence.source;
    for (const std::string& target : sentence.targets) out += '\t' + target;
    out += '\n';
  }
  return out;
}

std::string_view without_gutenberg(std::string_view text) {
  // Older files say THIS in place of THE, and write the first stars with a space or without.
  const auto marks = [](std::string_view line, std::string_view what) {
    return line.starts_with("***") && line.find(what) != std::string_view::npos &&
           line.find("PROJECT GUTENBERG") != std::string_view::npos;
  };
  size_t begin = 0, end = text.size();
  for_each_line(text, [&](std::string_view line, int64_t) {
    const auto at = static_cast<size_t>(line.data() - text.data());
    if (begin == 0 && marks(line, "START OF")) begin = std::min(text.find('\n', at), text.size());
    if (end == text.size() && marks(line, "END OF")) end = at;
  });
  if (begin == 0 && end == text.size()) return text;
  text = text.substr(begin, end - std::min(begin, end));
  const size_t first = text.find_first_not_of("\r\n"), last = text.find_last_not_of("\r\n");
  return first == std::string_view::npos ? "" : text.substr(first, last + 1 - first);
}

std::string clean_book(std::string_view text, Book book, const std::string& source) {
  check_utf8(text, source);
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  text = without_gutenberg(text);
  std::string out;
  bool empty_before = false;
  const bool is_chinese = book == Book::chinese || book == Book::chinese_stops;
  for_each_line(text, [&](std::string_view line, int64_t) {
    size_t begin = 0, end = line.size();
    if (book != Book::plain) {
      while (end > begin) {
        const text::CodePoint last = text::decode_before(line, end);
        if (!text::is_space(last.value)) break;
        end -= last.length;
      }
    }
    while (is_chinese && begin < end) {
      const text::CodePoint first = text::decode_valid(line, begin);
      if (!text::is_space(first.value)) break;
      begin += first.length;
    }
    const std::string_view kept = line.substr(begin, end - begin);
    const bool empty = kept.empty();
    if (empty && (is_chinese || (book == Book::english && empty_before))) return;
    empty_before = empty;
    if (book == Book::chinese_stops) {
      text::for_each_code_point(
          kept, [&](char32_t c, size_t, size_t) { text::append_utf8(c == 0xFF0E ? 0x3002 : c, out); });
    } else {
      out += kept;
    }
    out += '\n';
  });
  return out;
}

TextSplit split_by_characters(std::string_view text) {
  std::vector<size_t> starts;
  text::for_each_code_point(text, [&](char32_t, size_t at, size_t) { starts.push_back(at); });
  const size_t count = starts.size();
  starts.push_back(text.size());
  const size_t first = starts[count * 90 / 100], second = starts[count * 95 / 100];
  return {std::string(text.substr(0, first)), std::string(text.substr(first, second - first)),
          std::string(text.substr(second))};
}

TextSplit split_by_lines(std::string_view text) {
  std::vector<size_t> starts = {0};
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') starts.push_back(i + 1);
  }
  if (starts.back() != text.size()) starts.push_back(text.size());
  const size_t count = starts.size() - 1;
  const size_t first = starts[count * 90 / 100], second = starts[count * 95 / 100];
  return {std::string(text.substr(0, first)), std::string(text.substr(first, second - first)),
          std::string(text.substr(second))};
}

}  // namespace regard::train

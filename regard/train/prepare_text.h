#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Texts as they come from the web, made into the sets that the documents speak of. All of it is UTF-8; what
// is not throws io::Error naming the line.
namespace regard::train {

// NFC; no-break, narrow no-break and thin spaces become spaces, runs of spaces one; none at the ends; with
// straight_quotes curly quotes become straight ones.
std::string clean_sentence(std::string_view sentence, bool straight_quotes = true);
// What is the same sentence to a reader: NFKC, case folded, letters and digits alone.
std::string bare_sentence(std::string_view sentence);

struct SentencePair {
  std::string source, target;
  bool operator==(const SentencePair&) const = default;
};

struct PairOptions {
  int64_t most_source_words = 0;  // more are left out; 0: any number
  int64_t most_target_words = 0;
  bool straight_quotes = true;
};

// Of lines "source TAB target", further fields ignored: cleaned, each pair once, where it first stands.
std::vector<SentencePair> read_pairs(std::string_view tsv, const std::string& source,
                                     const PairOptions& options);

struct WithReferences {
  std::string source;
  std::vector<std::string> targets;
};
struct PairSplit {
  std::vector<SentencePair> train;
  std::vector<WithReferences> valid, test;
};

// Pairs that share a bare source or a bare target belong together, and so do those that share one with these:
// such a group goes to one part as a whole, so that no sentence of valid or test, in either language, is one
// of train. valid and test hold so many different sources each, drawn by the seed. Throws
// std::invalid_argument where the pairs do not suffice.
PairSplit split_pairs(const std::vector<SentencePair>& pairs, int64_t sources, uint64_t seed);

// train: "source TAB target"; valid and test: "source TAB reference TAB reference ...".
std::string to_tsv(const std::vector<SentencePair>& pairs);
std::string to_tsv(const std::vector<WithReferences>& sentences);

// What stands between Project Gutenberg's lines "*** START OF ..." and "*** END OF ...", without empty lines
// at either end; a text that has no such lines as it is.
std::string_view without_gutenberg(std::string_view text);

// Of each: without_gutenberg().
enum class Book {
  plain,          // line ends and byte order mark
  english,        // and blanks at the ends of lines, runs of empty lines
  chinese,        // and indentation, all empty lines
  chinese_stops,  // and U+FF0E, for a full stop, is U+3002
};
std::string clean_book(std::string_view text, Book book, const std::string& source);

struct TextSplit {
  std::string train, valid, test;
};
// 90, 5 and 5 percent, one after the other, by characters or by lines.
TextSplit split_by_characters(std::string_view text);
TextSplit split_by_lines(std::string_view text);

// Traditional to simplified Chinese by the program `opencc` (its t2s). Throws io::Error where it is not
// installed.
std::string simplified(std::string_view text);

}  // namespace regard::train

// Texts of the web, made into sets.
#include "regard/train/prepare_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

#include "regard/io/error.h"
#include "regard/train/data_sets.h"
#include "regard/train/generated_task.h"
#include "regard/train/zipf_markov.h"
#include "tests/io/files.h"

namespace regard::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(PrepareText, SentencesBecomePlain) {
  EXPECT_EQ(clean_sentence("  C\xE2\x80\x99"
                           "est  \xC2\xAB\xC2\xA0"
                           "bon\xE2\x80\xAF\xC2\xBB\t!  "),
            "C'est \xC2\xAB bon \xC2\xBB !");
  EXPECT_EQ(clean_sentence("\xE2\x80\x9Cyes\xE2\x80\x9D \xE2\x80\x98no\xE2\x80\x99"), "\"yes\" 'no'");
  EXPECT_EQ(clean_sentence("\xE2\x80\x9Cyes\xE2\x80\x9D", false), "\xE2\x80\x9Cyes\xE2\x80\x9D");
  EXPECT_EQ(clean_sentence("e\xCC\x81t\xC3\xA9"), "\xC3\xA9t\xC3\xA9");  // composed
  EXPECT_EQ(clean_sentence(" \xC2\xA0 "), "");
}

TEST(PrepareText, BareSentencesAreThoseOfAReader) {
  EXPECT_EQ(bare_sentence("Go on!"), bare_sentence("GO  ON..."));
  EXPECT_EQ(bare_sentence("\xEF\xBC\xA7o"), "go");  // a full-width letter
  EXPECT_EQ(bare_sentence("stra\xC3\x9F"
                          "e"),
            bare_sentence("STRASSE"));
  EXPECT_EQ(bare_sentence("?!"), "");
}

TEST(PrepareText, PairsStandOnceAndLongOnesAreLeftOut) {
  const std::string tsv =
      "\xEF\xBB\xBFGo.\tVa !\tCC-BY 2.0\r\nGo.\tVa\xC2\xA0!\n\none two three\tun deux\nGo.\tMarche.\nHi.\t  "
      "\n";
  EXPECT_THAT(read_pairs(tsv, "file", {2, 5}),
              ElementsAre(SentencePair{"Go.", "Va !"}, SentencePair{"Go.", "Marche."}));
  EXPECT_EQ(read_pairs(tsv, "file", {}).size(), 3u);
  EXPECT_EQ(read_pairs(tsv, "file", {.most_target_words = 1}).size(), 1u);
  EXPECT_THAT(io::message_of<io::Error>([] { read_pairs("a\tb\nno tab\n", "file", {}); }),
              HasSubstr("file line 2: has no tab"));
  EXPECT_THAT(io::message_of<io::Error>([] { read_pairs("a\tb\nc\t\xFF\n", "file", {}); }),
              HasSubstr("file line 2: not valid"));
}

TEST(PrepareText, WhatSharesASentenceStaysTogether) {
  std::vector<SentencePair> pairs;
  for (int i = 0; i < 300; ++i) {
    const std::string number = std::to_string(i), half = std::to_string(i / 2);
    pairs.push_back({"Source " + number + ".", "cible " + half + " !"});  // two sources of one target
    pairs.push_back({"source " + number, "autre cible " + number});       // the same source to a reader
  }
  const PairSplit split = split_pairs(pairs, 40, 5);
  std::set<std::string> sources, targets, groups[2];
  size_t kept = split.train.size();
  for (const SentencePair& pair : split.train) {
    sources.insert(bare_sentence(pair.source));
    targets.insert(bare_sentence(pair.target));
  }
  const auto& valid = split.valid;
  for (const auto* part : {&split.valid, &split.test}) {
    EXPECT_EQ(part->size(), 40u);
    for (const WithReferences& one : *part) {
      EXPECT_FALSE(sources.contains(bare_sentence(one.source))) << one.source;
      for (const std::string& target : one.targets)
        EXPECT_FALSE(targets.contains(bare_sentence(target))) << target;
      kept += one.targets.size();
      groups[part == &valid ? 0 : 1].insert(bare_sentence(one.source));
    }
  }
  EXPECT_EQ(kept, pairs.size());
  for (const std::string& one : groups[0]) EXPECT_FALSE(groups[1].contains(one)) << one;
  EXPECT_EQ(to_tsv(split_pairs(pairs, 40, 5).test), to_tsv(split.test));
  EXPECT_NE(to_tsv(split_pairs(pairs, 40, 6).test), to_tsv(split.test));
  EXPECT_THROW(split_pairs(pairs, 1000, 5), std::invalid_argument);
}

TEST(PrepareText, AllReferencesOfASourceStandInItsLine) {
  EXPECT_EQ(to_tsv(std::vector<WithReferences>{{"a", {"b", "c"}}, {"d", {"e"}}}), "a\tb\tc\nd\te\n");
  EXPECT_EQ(to_tsv(std::vector<SentencePair>{{"a", "b"}}), "a\tb\n");
}

TEST(PrepareText, BooksLoseWhatTheirFilesAdded) {
  EXPECT_EQ(clean_book("\xEF\xBB\xBF"
                       "a \r\n\r\n\r\n\r\nb\r\n",
                       Book::plain, "file"),
            "a \n\n\n\nb\n");
  EXPECT_EQ(clean_book("a \t\r\n\r\n \r\n\r\n  b", Book::english, "file"), "a\n\n  b\n");
  EXPECT_EQ(clean_book("\xE3\x80\x80\xE3\x80\x80\xE4\xB8\x80\xEF\xBC\x8E\n\n \xE4\xBA\x8C \n",
                       Book::chinese_stops, "file"),
            "\xE4\xB8\x80\xE3\x80\x82\n\xE4\xBA\x8C\n");
  EXPECT_THAT(io::message_of<io::Error>([] { clean_book("a\n\xC3(\n", Book::plain, "file"); }),
              HasSubstr("file line 2"));
}

TEST(PrepareText, GutenbergsLinesAreCut) {
  const std::string header = "The Project Gutenberg eBook\r\n\r\n", footer = "Updated editions\r\n";
  for (const char* which : {"THE", "THIS"}) {
    const std::string name = std::string(" OF ") + which + " PROJECT GUTENBERG EBOOK A BOOK ***\r\n";
    const std::string file = header + "*** START" + name +
                             "\r\n\r\nCall me.  \r\n\r\n*** ***\r\nThe end.\r\n\r\n*** END" + name + footer;
    EXPECT_EQ(clean_book(file, Book::plain, "file"), "Call me.  \n\n*** ***\nThe end.\n");
    EXPECT_EQ(clean_book("\xEF\xBB\xBF" + file, Book::english, "file"), "Call me.\n\n*** ***\nThe end.\n");
  }
  EXPECT_EQ(without_gutenberg("a\n*** START OF A WALK ***\nb"), "a\n*** START OF A WALK ***\nb");
  EXPECT_EQ(without_gutenberg("*** START OF THE PROJECT GUTENBERG EBOOK X ***"), "");
  EXPECT_EQ(without_gutenberg("a\n\n*** END OF THE PROJECT GUTENBERG EBOOK X ***\nb"), "a");
}

TEST(PrepareText, SplitsAreNinetyFiveFive) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "\xE4\xB8\x80";
  const TextSplit by_characters = split_by_characters(text);
  EXPECT_EQ(by_characters.train.size(), 270u);
  EXPECT_EQ(by_characters.valid.size(), 15u);
  EXPECT_EQ(by_characters.test.size(), 15u);
  std::string lines;
  for (int i = 0; i < 40; ++i) lines += std::to_string(i) + "\n";
  const TextSplit by_lines = split_by_lines(lines);
  EXPECT_EQ(by_lines.train + by_lines.valid + by_lines.test, lines);
  EXPECT_EQ(by_lines.valid, "36\n37\n");
  EXPECT_EQ(by_lines.test, "38\n39\n");
  EXPECT_EQ(split_by_characters("").train, "");
  EXPECT_EQ(split_by_lines("one line").test, "one line");
}

TEST(DataSets, AnUnknownNameNamesTheNearestAndEachHasALicence) {
  EXPECT_THAT(io::message_of<std::invalid_argument>([] { data_set("shape"); }),
              HasSubstr("did you mean 'shapes'?"));
  for (const DataSet& set : data_sets()) {
    EXPECT_FALSE(set.licence.empty()) << set.name;
    EXPECT_FALSE(set.address.empty()) << set.name;
    EXPECT_EQ(&data_set(set.name), &set);
  }
}

TEST(DataSets, WhatIsMadeIsWhatRecipesMake) {
  const io::TemporaryFolder folder;
  for (const KnownTask& task : known_tasks()) {
    const auto files = make(data_set(task.name), folder / task.name);
    ASSERT_EQ(files.size(), 3u);
    for (uint64_t stream = 0; stream < 2; ++stream) {
      std::string lines;
      for (const TextPair& text : generate({.kind = task.kind}, 500, stream))
        lines += text.source + '\t' + text.references[0] + '\n';
      EXPECT_TRUE(io::read_all(files[stream]).starts_with(lines)) << task.name;
    }
  }
  const auto files = make(data_set(kZipfMarkov), folder / kZipfMarkov);
  std::string words;
  for (const int32_t word : zipf_markov({}, 20, 1))
    words += (words.empty() ? "" : " ") + std::to_string(word);
  EXPECT_TRUE(io::read_all(files.at(1)).starts_with(words + '\n'));
}

TEST(DataSets, ABookIsPreparedIntoItsParts) {
  const io::TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "abcdefghi\r\n";
  io::write_all(folder / "input.txt", text);
  const auto files = prepare(data_set("tinyshakespeare"), folder / "input.txt", folder / "out", 0);
  ASSERT_EQ(files.size(), 3u);
  EXPECT_EQ(io::read_all(files[0]).size(), 9000u);
  EXPECT_EQ(io::read_all(files[2]).size(), 500u);
  EXPECT_THROW(prepare(data_set("shapes"), folder / "input.txt", folder / "out", 0), std::invalid_argument);
  EXPECT_THROW(make(data_set("digits"), folder / "out", 0), std::invalid_argument);
  EXPECT_THAT(
      io::message_of<io::Error>([&] { get(data_set("fashion-mnist"), folder / "o", folder / "none"); }),
      HasSubstr("apt-get install dataset-fashion-mnist"));
}

}  // namespace
}  // namespace regard::train

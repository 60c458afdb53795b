#include "regard/train/generated_task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <sstream>
#include <stdexcept>

#include "regard/text/load.h"
#include "regard/text/train_vocabulary.h"

namespace regard::train {
namespace {

using Kind = GeneratedTask::Kind;
using Words = std::vector<std::string>;

Words words_in(const std::string& text) {
  std::istringstream in(text);
  Words out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

// The value of an expression that begins there; moves behind it.
int64_t value(Words::const_iterator& at) {
  const std::string word = *at++;
  if (!word.starts_with("[")) return std::stoll(word);
  std::vector<int64_t> values;
  while (*at != "]") values.push_back(value(at));
  ++at;
  std::sort(values.begin(), values.end());
  const size_t count = values.size();
  if (word == "[MAX") return values.back();
  if (word == "[MIN") return values.front();
  if (word == "[SM") return std::accumulate(values.begin(), values.end(), int64_t{0}) % 7;
  return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

// The right answer, worked out from the source alone.
Words answer(Kind kind, const Words& source) {
  Words out = source;
  const auto question = std::find(source.begin(), source.end(), "?");
  switch (kind) {
    case Kind::copy:
      return out;
    case Kind::reverse:
      std::reverse(out.begin(), out.end());
      return out;
    case Kind::repeat:
      out.insert(out.end(), source.begin(), source.end());
      return out;
    case Kind::selective:
      out.erase(std::remove(out.begin(), out.end(), "."), out.end());
      return out;
    case Kind::recall:
    case Kind::needle: {
      std::map<std::string, std::string> known;
      for (auto at = source.begin(); at != question; ++at) {
        if (!at->starts_with("k")) continue;
        EXPECT_TRUE(known.emplace(*at, *(at + 1)).second) << "a key twice";
      }
      out.clear();
      for (auto at = question + 1; at != source.end(); ++at) out.push_back(known.at(*at));
      return out;
    }
    case Kind::listops: {
      auto at = source.begin();
      out = {std::to_string(value(at))};
      EXPECT_EQ(at, source.end());
      return out;
    }
  }
  return out;
}

TEST(GeneratedTask, TargetsAreTheRightAnswers) {
  for (const auto& [name, kind, what] : known_tasks()) {
    const GeneratedTask task{.kind = kind, .symbols = 7, .shortest = 3, .longest = 9, .seed = 5};
    std::set<size_t> lengths;
    for (const TextPair& pair : generate(task, 200, 0)) {
      const Words source = words_in(pair.source);
      ASSERT_EQ(pair.references.size(), 1u);
      EXPECT_EQ(words_in(pair.references[0]), answer(kind, source)) << pair.source;
      lengths.insert(source.size());
    }
    EXPECT_GE(lengths.size(), 7u) << name;
  }
}

TEST(GeneratedTask, ASeedAndAStreamAreTheTexts) {
  GeneratedTask task{.kind = Kind::recall, .symbols = 9, .shortest = 2, .longest = 5};
  const auto sources = [&](int64_t count, uint64_t stream) {
    Words out;
    for (const TextPair& pair : generate(task, count, stream)) out.push_back(pair.source);
    return out;
  };
  const Words first = sources(50, 0);
  EXPECT_EQ(sources(50, 0), first);
  EXPECT_EQ(sources(20, 0), Words(first.begin(), first.begin() + 20));
  EXPECT_NE(sources(50, 1), first);
  task.seed = 2;
  EXPECT_NE(sources(50, 0), first);
}

TEST(GeneratedTask, EachWordIsOneToken) {
  for (const auto& [name, kind, what] : known_tasks()) {
    const GeneratedTask task{.kind = kind, .symbols = 12, .shortest = 2, .longest = 11};
    const Words words = words_of(task);
    const auto tokenizer = text::tokenizer_from_json(word_vocabulary(words), "words");
    EXPECT_EQ(tokenizer->vocabulary_size(), words.size() + 4);
    for (const TextPair& pair : generate(task, 50, 0)) {
      for (const std::string& text : {pair.source, pair.references[0]}) {
        const text::Encoding encoding = tokenizer->encode(text, {.add_special = false});
        EXPECT_EQ(encoding.unknown, 0u);
        EXPECT_EQ(encoding.size(), words_in(text).size());
        EXPECT_EQ(tokenizer->decode(encoding.ids), text);
      }
    }
  }
}

TEST(GeneratedTask, AnExpressionHasSoManyDigitsAndEveryOperator) {
  const GeneratedTask task{.kind = Kind::listops, .shortest = 8, .longest = 8};
  std::set<std::string> words, values;
  for (const TextPair& pair : generate(task, 300, 0)) {
    const Words source = words_in(pair.source);
    EXPECT_EQ(std::count_if(source.begin(), source.end(),
                            [](const std::string& word) { return std::isdigit(word[0]) != 0; }),
              8);
    words.insert(source.begin(), source.end());
    values.insert(pair.references[0]);
  }
  EXPECT_EQ(words, [&] {
    const Words all = words_of(task);
    return std::set<std::string>(all.begin(), all.end());
  }());
  EXPECT_EQ(values.size(), 10u);
}

TEST(GeneratedTask, OptionsOutOfRangeAreRefused) {
  EXPECT_THROW(generate({.symbols = 0}, 5, 0), std::invalid_argument);
  EXPECT_THROW(generate({.shortest = 5, .longest = 4}, 5, 0), std::invalid_argument);
  EXPECT_THROW(generate({}, 0, 0), std::invalid_argument);
  EXPECT_THROW(generated_named("sort"), std::invalid_argument);
}

}  // namespace
}  // namespace regard::train

// Small tasks whose texts are made up: what a model must be able to do, without what a language asks of it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "regard/text/train_vocabulary.h"
#include "regard/train/parallel_text.h"
#include "regard/train/shuffle.h"

namespace regard::train {

struct GeneratedTask {
  // A text is words with a space between; symbols are the words "1", "2", ...
  enum class Kind : uint8_t {
    copy,       // n symbols -> the same
    reverse,    // n symbols -> the last first
    repeat,     // n symbols -> the same twice: what follows an earlier place is to be found (induction)
    selective,  // n symbols, as many "." scattered among them -> the symbols alone, in order
    recall,  // n pairs of a key and a symbol, "?", up to 4 of the keys -> their symbols (associative recall)
    needle,  // n noise words, one "key symbol" among them at any depth, "?", the key -> the symbol
    // A nested expression of n digits, such as "[MAX 4 [SM 7 9 ] ]" -> its value. Digits are 0 ... symbols -
    // 1; MED is the median, of an even number the mean of the two in the middle, rounded down; SM the sum
    // modulo `symbols` (ListOps of Nangia and Bowman 2018, arXiv 1804.06028, in small).
    listops
  };
  Kind kind = Kind::copy;
  int64_t symbols = 10;
  int64_t shortest = 10, longest = 10;  // n: uniform between them
  uint64_t seed = kSeed;
};

struct KnownTask {
  const char* name;
  GeneratedTask::Kind kind;
  const char* what;  // with n = 10
};
std::span<const KnownTask> known_tasks();
// Their names with commas between.
std::string task_names();
// Throws std::invalid_argument naming the known ones.
GeneratedTask::Kind generated_named(const std::string& name);

// Each text with its one right answer. Different streams (0: training, 1: validation, 2: test) have nothing
// to do with each other; the first texts of a stream do not depend on how many are asked for. Throws
// std::invalid_argument for options out of range; keys are the words "k1", "k2", ..., each at most once in a
// text.
std::vector<TextPair> generate(const GeneratedTask& task, int64_t count, uint64_t stream);

// All words of a task's texts.
std::vector<std::string> words_of(const GeneratedTask& task);

// A tokenizer.json in which each of the words is one token, with the ids and special tokens of
// text/train_vocabulary.h in front, and `behind` behind a text.
std::string word_vocabulary(const std::vector<std::string>& words, text::TokenId behind = text::kEosId);

}  // namespace regard::train

#include "regard/train/generated_task.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <stdexcept>
#include <utility>

#include "regard/io/json.h"
#include "regard/text/vocabulary_json.h"
#include "regard/train/names.h"
#include "regard/train/shuffle.h"

namespace regard::train {
namespace {

using Kind = GeneratedTask::Kind;
using Words = std::vector<std::string>;

constexpr KnownTask kTasks[] = {
    {"copy", Kind::copy, "10 symbols -> the same"},
    {"reverse", Kind::reverse, "10 symbols -> the last first"},
    {"repeat", Kind::repeat, "10 symbols -> the same twice"},
    {"selective", Kind::selective, "10 symbols among 10 dots -> the symbols alone"},
    {"recall", Kind::recall, "10 keys with their symbols, then keys -> their symbols"},
    {"needle", Kind::needle, "10 noise words and a key with its symbol, then the key -> its symbol"},
    {"listops", Kind::listops, "10 digits in nested lists, such as [MAX 4 [SM 7 9 ] ] -> the value"}};
constexpr int64_t kMostQueries = 4;
constexpr int64_t kNoiseWords = 20;
constexpr int64_t kMostArguments = 5;

enum Operator : uint8_t { max, min, median, sum };
constexpr std::array<const char*, 4> kOperators = {"[MAX", "[MIN", "[MED", "[SM"};

int64_t applied(Operator op, std::vector<int64_t> values, int64_t modulus) {
  std::sort(values.begin(), values.end());
  switch (op) {
    case max:
      return values.back();
    case min:
      return values.front();
    case median:
      return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
    case sum:
      break;
  }
  return std::accumulate(values.begin(), values.end(), int64_t{0}) % modulus;
}

std::string joined(const Words& words, const char* between = " ") {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : between) + word;
  return out;
}

std::string numbered(const char* begin, int64_t number) {
  return begin + std::to_string(number);
}

class Maker {
 public:
  Maker(const GeneratedTask& task, std::mt19937_64& generator) : task_(task), generator_(generator) {}

  std::pair<Words, Words> make() {
    const int64_t n = task_.shortest + draw(task_.longest - task_.shortest + 1);
    Words source, target;
    switch (task_.kind) {
      case Kind::copy:
      case Kind::reverse:
      case Kind::repeat:
        for (int64_t i = 0; i < n; ++i) source.push_back(symbol());
        target = source;
        if (task_.kind == Kind::reverse) std::reverse(target.begin(), target.end());
        if (task_.kind == Kind::repeat) target.insert(target.end(), source.begin(), source.end());
        break;
      case Kind::selective: {
        std::vector<int64_t> places = shuffled(2 * n, generator_);
        places.resize(static_cast<size_t>(n));
        std::sort(places.begin(), places.end());
        source.assign(static_cast<size_t>(2 * n), ".");
        for (const int64_t place : places) target.push_back(source[static_cast<size_t>(place)] = symbol());
        break;
      }
      case Kind::recall: {
        const std::vector<int64_t> keys = shuffled(task_.longest, generator_);
        Words values;
        for (int64_t i = 0; i < n; ++i) {
          values.push_back(symbol());
          source.push_back(numbered("k", keys[static_cast<size_t>(i)] + 1));
          source.push_back(values.back());
        }
        source.emplace_back("?");
        const std::vector<int64_t> asked = shuffled(n, generator_);
        for (int64_t i = 0; i < std::min(n, kMostQueries); ++i) {
          const auto pair = static_cast<size_t>(asked[static_cast<size_t>(i)]);
          source.push_back(numbered("k", keys[pair] + 1));
          target.push_back(values[pair]);
        }
        break;
      }
      case Kind::needle: {
        for (int64_t i = 0; i < n; ++i) source.push_back(numbered("n", 1 + draw(kNoiseWords)));
        const std::string key = numbered("k", 1 + draw(task_.symbols));
        target.push_back(symbol());
        const auto place = source.begin() + draw(n + 1);
        source.insert(source.insert(place, target.front()), key);
        source.emplace_back("?");
        source.push_back(key);
        break;
      }
      case Kind::listops:
        target.push_back(std::to_string(expression(n, source)));
        break;
    }
    return {source, target};
  }

 private:
  int64_t draw(int64_t limit) {
    return static_cast<int64_t>(below(generator_, static_cast<uint64_t>(limit)));
  }
  // Writes one of so many digits; returns its value.
  int64_t expression(int64_t digits, Words& out) {
    if (digits == 1) {
      const int64_t digit = draw(task_.symbols);
      out.push_back(std::to_string(digit));
      return digit;
    }
    const auto op = static_cast<Operator>(draw(kOperators.size()));
    out.emplace_back(kOperators[op]);
    const int64_t arguments = 2 + draw(std::min(digits, kMostArguments) - 1);
    std::vector<int64_t> share(static_cast<size_t>(arguments), 1);
    for (int64_t left = digits - arguments; left > 0; --left) ++share[static_cast<size_t>(draw(arguments))];
    std::vector<int64_t> values;
    for (const int64_t some : share) values.push_back(expression(some, out));
    out.emplace_back("]");
    return applied(op, std::move(values), task_.symbols);
  }
  std::string symbol() { return std::to_string(1 + draw(task_.symbols)); }

  const GeneratedTask& task_;
  std::mt19937_64& generator_;
};

}  // namespace

std::span<const KnownTask> known_tasks() {
  return kTasks;
}

std::string task_names() {
  Words names;
  for (const KnownTask& task : kTasks) names.emplace_back(task.name);
  return joined(names, ", ");
}

GeneratedTask::Kind generated_named(const std::string& name) {
  return kind_named("task", name, kTasks);
}

std::vector<TextPair> generate(const GeneratedTask& task, int64_t count, uint64_t stream) {
  if (task.symbols < 1 || task.shortest < 1 || task.longest < task.shortest || count < 1) {
    throw std::invalid_argument("a generated task has " + std::to_string(count) + " texts of " +
                                std::to_string(task.shortest) + " to " + std::to_string(task.longest) +
                                " words of " + std::to_string(task.symbols) +
                                " symbols; each must be at least 1 and the lengths in order");
  }
  std::mt19937_64 generator = generator_of(task.seed, stream);
  Maker maker(task, generator);
  std::vector<TextPair> out;
  for (int64_t i = 0; i < count; ++i) {
    const auto [source, target] = maker.make();
    out.push_back({joined(source), {joined(target)}});
  }
  return out;
}

std::vector<std::string> words_of(const GeneratedTask& task) {
  Words out;
  const auto add = [&](const char* begin, int64_t count) {
    for (int64_t i = 1; i <= count; ++i) out.push_back(numbered(begin, i));
  };
  if (task.kind == Kind::listops) {
    for (int64_t digit = 0; digit < task.symbols; ++digit) out.push_back(std::to_string(digit));
    out.insert(out.end(), kOperators.begin(), kOperators.end());
    out.emplace_back("]");
    return out;
  }
  add("", task.symbols);
  if (task.kind == Kind::selective) out.emplace_back(".");
  if (task.kind == Kind::recall) add("k", task.longest);
  if (task.kind == Kind::needle) {
    add("k", task.symbols);
    add("n", kNoiseWords);
  }
  if (task.kind == Kind::recall || task.kind == Kind::needle) out.emplace_back("?");
  return out;
}

std::string word_vocabulary(const std::vector<std::string>& words, text::TokenId behind) {
  io::Json pieces = io::Json::array();
  for (const char* special : {"<pad>", "<unk>", "<s>", "</s>"}) pieces.push_back({special, 0.0});
  for (const std::string& word : words) pieces.push_back({"\xE2\x96\x81" + word, -1.0});
  return text::unigram_json(pieces, false, behind);
}

}  // namespace regard::train

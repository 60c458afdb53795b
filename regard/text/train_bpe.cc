#include "regard/text/train_bpe.h"

#include <algorithm>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "regard/text/byte_bpe.h"
#include "regard/text/pre_split.h"
#include "regard/text/vocabulary_json.h"

namespace regard::text {
namespace {

constexpr int32_t kFirstByteId = kEosId + 1;
using Pair = std::pair<int32_t, int32_t>;

struct Word {
  std::vector<int32_t> symbols;
  int64_t count;
};

class Trainer {
 public:
  explicit Trainer(std::span<const std::string> sentences) {
    for (int byte = 0; byte < 256; ++byte) symbol_of(std::string(1, static_cast<char>(byte)));
    std::map<std::string, int64_t, std::less<>> counts;
    for (const std::string& sentence : sentences) {
      pre_split(PreSplit::gpt2, sentence,
                [&](Span span) { ++counts[sentence.substr(span.begin, span.end - span.begin)]; });
    }
    for (const auto& [word, count] : counts) {
      Word& made = words_.emplace_back(Word{{}, count});
      for (const char c : word) made.symbols.push_back(static_cast<unsigned char>(c));
      add_pairs(words_.size() - 1, 1);
    }
    for (const auto& [pair, count] : counts_) push(pair);
  }

  // The next pair to join; none where no pair occurs twice.
  std::optional<Pair> join() {
    while (!queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      if (counts_[best.pair] != best.count) continue;  // another entry holds its count of now
      join(best.pair);
      return best.pair;
    }
    return std::nullopt;
  }

  const std::string& spelled(int32_t symbol) const { return spelled_[static_cast<size_t>(symbol)]; }

 private:
  struct Candidate {
    int64_t count;
    Pair pair;
    std::string left, right;  // bytes
  };
  struct Later {
    bool operator()(const Candidate& a, const Candidate& b) const {
      if (a.count != b.count) return a.count < b.count;
      return std::tie(a.left, a.right) > std::tie(b.left, b.right);
    }
  };

  void push(Pair pair) {
    const int64_t count = counts_[pair];
    if (count > 1) queue_.push({count, pair, spelled(pair.first), spelled(pair.second)});
  }

  // Counts a word's pairs (sign 1) or takes them back (-1).
  void add_pairs(size_t index, int64_t sign) {
    const Word& word = words_[index];
    for (size_t i = 0; i + 1 < word.symbols.size(); ++i) {
      const Pair pair{word.symbols[i], word.symbols[i + 1]};
      counts_[pair] += sign * word.count;
      if (sign > 0) words_with_[pair].insert(index);
    }
  }

  void join(Pair pair) {
    // Two ways to the same bytes ("a" + "bc", "ab" + "c") make one symbol.
    const int32_t joined = symbol_of(spelled(pair.first) + spelled(pair.second));
    std::set<Pair> changed;
    const auto touched = std::move(words_with_[pair]);
    words_with_.erase(pair);
    const auto note = [&](const Word& word) {
      for (size_t i = 0; i + 1 < word.symbols.size(); ++i)
        changed.emplace(word.symbols[i], word.symbols[i + 1]);
    };
    for (const size_t index : touched) {
      Word& word = words_[index];
      note(word);
      add_pairs(index, -1);
      size_t out = 0;
      for (size_t i = 0; i < word.symbols.size(); ++i) {
        const bool both = i + 1 < word.symbols.size() && Pair{word.symbols[i], word.symbols[i + 1]} == pair;
        word.symbols[out++] = both ? joined : word.symbols[i];
        if (both) ++i;
      }
      word.symbols.resize(out);
      add_pairs(index, 1);
      note(word);
    }
    changed.erase(pair);
    counts_[pair] = 0;
    for (const Pair& one : changed) push(one);
  }

  int32_t symbol_of(std::string bytes) {
    const auto [at, is_new] = symbols_.emplace(bytes, static_cast<int32_t>(spelled_.size()));
    if (is_new) spelled_.push_back(std::move(bytes));
    return at->second;
  }

  std::map<std::string, int32_t> symbols_;
  std::vector<std::string> spelled_;  // by symbol
  std::vector<Word> words_;
  std::map<Pair, int64_t> counts_;
  std::map<Pair, std::set<size_t>> words_with_;  // some of them may have lost it
  std::priority_queue<Candidate, std::vector<Candidate>, Later> queue_;
};

// Bytes as byte-level BPE writes them.
std::string visible_bytes(const std::string& bytes) {
  std::string out;
  for (const char c : bytes) out += byte_symbol(static_cast<unsigned char>(c));
  return out;
}

}  // namespace

std::string train_byte_bpe(std::span<const std::string> sentences, int64_t size) {
  Trainer trainer(sentences);
  io::Json json = vocabulary_json();
  io::Json pieces = io::Json::object();
  for (const io::Json& token : json["added_tokens"]) pieces[token["content"]] = token["id"];
  for (int32_t byte = 0; byte < 256; ++byte)
    pieces[visible_bytes(trainer.spelled(byte))] = kFirstByteId + byte;
  io::Json merges = io::Json::array();
  while (static_cast<int64_t>(pieces.size()) < size) {
    const std::optional<Pair> pair = trainer.join();
    if (!pair) break;
    const std::string left = visible_bytes(trainer.spelled(pair->first));
    const std::string right = visible_bytes(trainer.spelled(pair->second));
    const auto id = static_cast<int64_t>(pieces.size());
    if (!pieces.contains(left + right)) pieces[left + right] = id;
    merges.push_back({left, right});
  }
  const io::Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  json["normalizer"] = nullptr;
  json["pre_tokenizer"] = byte_level;
  json["decoder"] = byte_level;
  json["model"] = {{"type", "BPE"}, {"vocab", pieces}, {"merges", merges}};
  return json.dump();
}

}  // namespace regard::text

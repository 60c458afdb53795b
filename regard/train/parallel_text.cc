#include "regard/train/parallel_text.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <stdexcept>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "regard/io/error.h"
#include "regard/io/mapped_file.h"
#include "regard/text/train_vocabulary.h"
#include "regard/text/utf8.h"
#include "regard/train/shuffle.h"

namespace regard::train {
namespace {

// The columns of a line. Throws io::Error.
std::vector<std::string> columns_of(std::string_view line, const std::string& place) {
  if (const auto offset = text::find_invalid_utf8(line))
    io::fail(place, "not valid UTF-8 at byte " + std::to_string(*offset) + " of the line");
  std::vector<std::string> out;
  for (;;) {
    const size_t tab = line.find('\t');
    const std::string_view column = line.substr(0, tab);
    if (column.find_first_not_of(' ') == std::string_view::npos)
      io::fail(place, "column " + std::to_string(out.size() + 1) + " is empty; each must hold a text");
    out.emplace_back(column);
    if (tab == std::string_view::npos) break;
    line.remove_prefix(tab + 1);
  }
  if (out.size() < 2) io::fail(place, "there is no tab; a line is a source, a tab and a translation");
  return out;
}

std::vector<TextPair> swap_sides(const std::vector<TextPair>& pairs) {
  std::vector<TextPair> out;
  std::unordered_map<std::string, size_t> seen;
  for (const TextPair& pair : pairs) {
    for (const std::string& reference : pair.references) {
      const auto [at, is_new] = seen.emplace(reference, out.size());
      if (is_new) out.push_back({reference, {}});
      out[at->second].references.push_back(pair.source);
    }
  }
  return out;
}

// How pairs are put in order, so that a batch has little padding.
std::pair<size_t, size_t> length_of(const TokenPair& pair) {
  return {pair.target.size(), pair.source.size()};
}

}  // namespace

std::vector<TextPair> parse_parallel_text(std::string_view text, const std::string& name, bool swapped) {
  std::vector<TextPair> out;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    std::vector<std::string> columns = columns_of(line, name + ", line " + std::to_string(number));
    TextPair& pair = out.emplace_back();
    pair.source = std::move(columns.front());
    pair.references.assign(std::make_move_iterator(columns.begin() + 1),
                           std::make_move_iterator(columns.end()));
  }
  return swapped ? swap_sides(out) : out;
}

std::vector<TextPair> read_parallel_text(const std::filesystem::path& path, bool swapped) {
  return parse_parallel_text(io::MappedFile::open(path).text(), path.string(), swapped);
}

std::vector<int32_t> source_ids(const text::Tokenizer& tokenizer, std::string_view text) {
  const text::Encoding encoding = tokenizer.encode(text, {.add_special = false, .parse_special = false});
  std::vector<int32_t> out(encoding.ids.begin(), encoding.ids.end());
  out.push_back(text::kEosId);
  return out;
}

std::vector<int32_t> target_ids(const text::Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> out = source_ids(tokenizer, text);
  out.insert(out.begin(), text::kBosId);
  return out;
}

std::vector<TokenPair> token_pairs(const text::Tokenizer& tokenizer, const std::vector<TextPair>& texts) {
  std::vector<size_t> begins(texts.size() + 1, 0);  // of each text's pairs
  for (size_t i = 0; i < texts.size(); ++i) begins[i + 1] = begins[i] + texts[i].references.size();
  std::vector<TokenPair> out(begins.back());
  at::parallel_for(0, static_cast<int64_t>(texts.size()), 256, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const std::vector<int32_t> source = source_ids(tokenizer, texts[i].source);
      for (size_t j = 0; j < texts[i].references.size(); ++j)
        out[begins[i] + j] = {source, target_ids(tokenizer, texts[i].references[j])};
    }
  });
  return out;
}

PairBatches::PairBatches(std::vector<TokenPair> pairs, const BatchOptions& options, uint64_t seed)
    : options_(options), seed_(seed) {
  if (options.max_length < 2 || options.tokens < 2 * options.max_length) {
    throw std::invalid_argument("a batch of " + std::to_string(options.tokens) +
                                " tokens does not hold a source and a target of " +
                                std::to_string(options.max_length) + " tokens each");
  }
  const auto longest = static_cast<size_t>(options.max_length);
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (pairs[i].source.size() <= longest && pairs[i].target.size() <= longest)
      number_.push_back(static_cast<int64_t>(i));
  }
  left_out_ = static_cast<int64_t>(pairs.size() - number_.size());
  if (number_.empty()) {
    throw std::invalid_argument("of " + std::to_string(pairs.size()) + " pairs none has at most " +
                                std::to_string(options.max_length) + " tokens on both sides");
  }
  std::stable_sort(number_.begin(), number_.end(), [&](int64_t a, int64_t b) {
    return length_of(pairs[static_cast<size_t>(a)]) < length_of(pairs[static_cast<size_t>(b)]);
  });
  pairs_.reserve(number_.size());
  for (const int64_t number : number_) pairs_.push_back(std::move(pairs[static_cast<size_t>(number)]));

  size_t longest_source = 0;
  for (size_t i = 0; i < pairs_.size(); ++i) {
    longest_source = std::max(longest_source, pairs_[i].source.size());
    const size_t rows = begins_.empty() ? 0 : i + 1 - static_cast<size_t>(begins_.back());
    // A target is read without its last id and compared without its first.
    const size_t padded = rows * (longest_source + pairs_[i].target.size() - 1);
    if (rows == 0 || padded > static_cast<size_t>(options.tokens)) {
      begins_.push_back(static_cast<int64_t>(i));
      longest_source = pairs_[i].source.size();
    }
  }
  begins_.push_back(static_cast<int64_t>(pairs_.size()));
  rows_.resize(pairs_.size());
}

void PairBatches::begin_pass(int64_t pass) {
  if (pass == pass_) return;
  std::mt19937_64 generator = generator_of(seed_, static_cast<uint64_t>(pass));
  const auto count = pairs_.size();
  for (size_t begin = 0; begin < count;) {
    size_t end = begin;
    while (end < count && length_of(pairs_[end]) == length_of(pairs_[begin])) ++end;
    const std::vector<int64_t> places = shuffled(static_cast<int64_t>(end - begin), generator);
    for (size_t i = begin; i < end; ++i) rows_[i] = static_cast<int64_t>(begin) + places[i - begin];
    begin = end;
  }
  order_ = shuffled(per_pass(), generator);
  pass_ = pass;
}

std::vector<int64_t> PairBatches::numbers(int64_t step) {
  begin_pass(step / per_pass());
  const auto index = static_cast<size_t>(order_[static_cast<size_t>(step % per_pass())]);
  std::vector<int64_t> out;
  for (int64_t i = begins_[index]; i < begins_[index + 1]; ++i)
    out.push_back(number_[static_cast<size_t>(rows_[static_cast<size_t>(i)])]);
  return out;
}

PairBatch PairBatches::at(int64_t step) {
  begin_pass(step / per_pass());
  const auto index = static_cast<size_t>(order_[static_cast<size_t>(step % per_pass())]);
  return batch(rows_.data() + begins_[index], begins_[index + 1] - begins_[index]);
}

int64_t PairBatches::tokens(int64_t step) {
  begin_pass(step / per_pass());
  const auto index = static_cast<size_t>(order_[static_cast<size_t>(step % per_pass())]);
  int64_t out = 0;
  for (int64_t i = begins_[index]; i < begins_[index + 1]; ++i)
    out += static_cast<int64_t>(pairs_[static_cast<size_t>(rows_[static_cast<size_t>(i)])].target.size()) - 1;
  return out;
}

PairBatch PairBatches::in_order(int64_t index) const {
  std::vector<int64_t> rows;
  for (int64_t i = begins_[static_cast<size_t>(index)]; i < begins_[static_cast<size_t>(index) + 1]; ++i)
    rows.push_back(i);
  return batch(rows.data(), static_cast<int64_t>(rows.size()));
}

PairBatch PairBatches::batch(const int64_t* rows, int64_t count) const {
  int64_t sources = 0;
  int64_t targets = 0;
  int64_t shortest = options_.max_length;
  int64_t learned = 0;
  for (int64_t row = 0; row < count; ++row) {
    const TokenPair& pair = pairs_[static_cast<size_t>(rows[row])];
    sources = std::max(sources, static_cast<int64_t>(pair.source.size()));
    shortest = std::min(shortest, static_cast<int64_t>(pair.source.size()));
    targets = std::max(targets, static_cast<int64_t>(pair.target.size()) - 1);
    learned += static_cast<int64_t>(pair.target.size()) - 1;
  }
  PairBatch out;
  out.source = at::full({count, sources}, options_.pad, at::kLong);
  out.target = at::full({count, targets}, options_.pad, at::kLong);
  out.next = at::full({count, targets}, options_.pad, at::kLong);
  out.learned = at::empty({learned}, at::kLong);
  const at::Tensor lengths = at::empty({count}, at::kLong);
  auto* place = out.learned.mutable_data_ptr<int64_t>();
  for (int64_t row = 0; row < count; ++row) {
    const TokenPair& pair = pairs_[static_cast<size_t>(rows[row])];
    std::copy(pair.source.begin(), pair.source.end(), out.source.mutable_data_ptr<int64_t>() + row * sources);
    std::copy(pair.target.begin(), pair.target.end() - 1,
              out.target.mutable_data_ptr<int64_t>() + row * targets);
    std::copy(pair.target.begin() + 1, pair.target.end(),
              out.next.mutable_data_ptr<int64_t>() + row * targets);
    lengths.mutable_data_ptr<int64_t>()[row] = static_cast<int64_t>(pair.source.size());
    for (int64_t i = 0; i + 1 < static_cast<int64_t>(pair.target.size()); ++i) *place++ = row * targets + i;
  }
  if (shortest < sources) out.source_lengths = lengths;
  return out;
}

}  // namespace regard::train

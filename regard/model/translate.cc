#include "regard/model/translate.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>

#include "regard/model/load_translator.h"

namespace regard::model {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

using Texts = std::vector<std::vector<int64_t>>;

// What one text does with the model's answers: a search, or draws.
class Writer {
 public:
  Writer() = default;
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  virtual ~Writer() = default;
  // log P of each token for each of its rows, [rows, vocabulary] -> which rows go on with which ids; none:
  // done.
  virtual std::vector<BeamSearch::Continuation> step(const at::Tensor& log_probabilities) = 0;
  virtual Hypothesis result() const = 0;
};

class Searcher final : public Writer {
 public:
  Searcher(const TranslateOptions& options, int64_t limit)
      : beam_(options.beam), search_(options.beam, options.length_penalty, options.eos, limit) {}

  std::vector<BeamSearch::Continuation> step(const at::Tensor& log_probabilities) override {
    const int64_t width = std::min(2 * beam_, log_probabilities.size(1));
    const auto [best, tokens] = at::topk(log_probabilities, width);
    const at::Tensor values = best.contiguous(), ids = tokens.contiguous();
    const auto* value = values.const_data_ptr<float>();
    const auto* id = ids.const_data_ptr<int64_t>();
    std::vector<BeamSearch::Continuation> candidates;
    for (int64_t i = 0; i < values.numel(); ++i) {
      if (value[i] != kNever) candidates.push_back({i / width, id[i], static_cast<double>(value[i])});
    }
    return search_.step(std::move(candidates));
  }
  Hypothesis result() const override { return search_.best(); }

 private:
  int64_t beam_;
  BeamSearch search_;
};

// The score is the probability under the model, whatever the temperature.
class Drawer final : public Writer {
 public:
  Drawer(const TranslateOptions& options, int64_t text, int64_t limit) : options_(options), limit_(limit) {
    const uint64_t seed = options.sampling->seed;
    std::seed_seq both{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
                       static_cast<uint32_t>(text)};
    random_.seed(both);
  }

  std::vector<BeamSearch::Continuation> step(const at::Tensor& log_probabilities) override {
    const at::Tensor row = log_probabilities.select(0, 0);
    const double draw = static_cast<double>(random_() >> 11) * 0x1p-53;
    const int64_t id = choose_token(row, *options_.sampling, draw, drawn_.ids);
    drawn_.log_probability += row[id].item<double>();
    drawn_.finished = id == options_.eos;
    if (!drawn_.finished) drawn_.ids.push_back(id);
    if (drawn_.finished || static_cast<int64_t>(drawn_.ids.size()) >= limit_) return {};
    return {{0, id, 0.0}};
  }
  Hypothesis result() const override {
    Hypothesis result = drawn_;
    const auto tokens = static_cast<int64_t>(result.ids.size()) + (result.finished ? 1 : 0);
    result.score = result.log_probability / length_norm(tokens, options_.length_penalty);
    return result;
  }

 private:
  const TranslateOptions& options_;
  int64_t limit_;
  std::mt19937_64 random_;
  Hypothesis drawn_;
};

at::Tensor as_tensor(const std::vector<int64_t>& ids) {
  at::Tensor out = at::empty({static_cast<int64_t>(ids.size())}, at::kLong);
  std::copy(ids.begin(), ids.end(), out.mutable_data_ptr<int64_t>());
  return out;
}

class Run {
 public:
  Run(Translator& model, const Texts& sources, const TranslateOptions& options)
      : model_(model), sources_(sources), options_(options), out_(sources.size()) {}

  std::vector<Translation> all() {
    // Texts of like length together, so that little is padding.
    std::vector<size_t> order(sources_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [this](size_t a, size_t b) { return sources_[a].size() > sources_[b].size(); });
    const auto texts = static_cast<size_t>(std::max<int64_t>(1, options_.batch_rows / options_.beam));
    for (size_t begin = 0; begin < order.size(); begin += texts) {
      const size_t end = std::min(order.size(), begin + texts);
      batch({order.begin() + static_cast<int64_t>(begin), order.begin() + static_cast<int64_t>(end)});
    }
    return std::move(out_);
  }

 private:
  struct Member {
    size_t text = 0;
    int64_t rows = 1;  // 0: done
    std::unique_ptr<Writer> writer;
  };

  int64_t limit(size_t text) const {
    const int64_t wanted =
        options_.max_tokens > 0 ? options_.max_tokens : 2 * static_cast<int64_t>(sources_[text].size()) + 10;
    return std::min(wanted, model_.max_positions());
  }

  at::Tensor log_probabilities(const at::Tensor& logits) const {
    at::Tensor all = at::log_softmax(logits, -1);
    for (const int64_t id : {options_.bos, options_.pad})
      if (id != options_.eos) all.select(-1, id).fill_(kNever);
    return all;
  }

  void batch(const std::vector<size_t>& texts) {
    Texts ids;
    std::vector<Member> members;
    int64_t capacity = 0;
    for (const size_t text : texts) {
      ids.push_back(sources_[text]);
      capacity = std::max(capacity, limit(text));
      Member member;
      member.text = text;
      if (options_.sampling) {
        member.writer = std::make_unique<Drawer>(options_, static_cast<int64_t>(text), limit(text));
      } else {
        member.writer = std::make_unique<Searcher>(options_, limit(text));
      }
      members.push_back(std::move(member));
    }
    layer::Context context;
    const Source source = pad_sources(ids, options_.pad);
    const auto decoding = model_.begin(source, capacity, context);
    at::Tensor next = at::full({static_cast<int64_t>(texts.size())}, options_.bos, at::kLong);
    while (next.numel() > 0) {
      next = step(members, log_probabilities(model_.step(*decoding, next).logits), *decoding);
      if (options_.progress) options_.progress(done_, static_cast<int64_t>(sources_.size()));
    }
    if (options_.weights && model_.cross_heads() > 0) look(source, texts, capacity);
  }

  // What the rows read next, after those that go on were selected.
  at::Tensor step(std::vector<Member>& members, const at::Tensor& log_probabilities,
                  Translator::Decoding& decoding) {
    std::vector<int64_t> rows, next;
    int64_t first = 0;
    for (Member& member : members) {
      if (member.rows == 0) continue;
      const auto chosen = member.writer->step(log_probabilities.narrow(0, first, member.rows));
      for (const BeamSearch::Continuation& going : chosen) {
        rows.push_back(first + going.row);
        next.push_back(going.id);
      }
      first += member.rows;
      member.rows = static_cast<int64_t>(chosen.size());
      if (member.rows > 0) continue;
      static_cast<Hypothesis&>(out_[member.text]) = member.writer->result();
      ++done_;
    }
    std::vector<int64_t> unmoved(static_cast<size_t>(first));
    std::iota(unmoved.begin(), unmoved.end(), int64_t{0});
    if (!next.empty() && rows != unmoved) decoding.select(as_tensor(rows));
    return as_tensor(next);
  }

  // Writes the results once more, each a row, and keeps where each step looked: cheaper than to keep it of
  // all hypotheses.
  void look(const Source& source, const std::vector<size_t>& texts, int64_t capacity) {
    layer::Context context;
    const auto decoding = model_.begin(source, capacity, context);
    size_t longest = 0;
    for (const size_t text : texts) longest = std::max(longest, out_[text].ids.size());
    std::vector<at::Tensor> steps;
    for (size_t t = 0; t < longest; ++t) {
      std::vector<int64_t> read;
      for (const size_t text : texts) {
        const std::vector<int64_t>& ids = out_[text].ids;
        read.push_back(t == 0 || t > ids.size() ? options_.bos : ids[t - 1]);
      }
      steps.push_back(model_.step(*decoding, as_tensor(read), true).weights);
    }
    for (size_t row = 0; row < texts.size(); ++row) {
      Translation& made = out_[texts[row]];
      const auto keys = static_cast<int64_t>(sources_[texts[row]].size());
      made.weights =
          at::zeros({static_cast<int64_t>(made.ids.size()), model_.cross_heads(), keys}, at::kFloat);
      for (size_t t = 0; t < made.ids.size(); ++t) {
        made.weights.select(0, static_cast<int64_t>(t))
            .copy_(steps[t].select(0, static_cast<int64_t>(row)).narrow(1, 0, keys));
      }
    }
  }

  Translator& model_;
  const Texts& sources_;
  const TranslateOptions& options_;
  std::vector<Translation> out_;
  int64_t done_ = 0;
};

void check(const TranslateOptions& options) {
  const auto refuse = [](const std::string& what) { throw std::invalid_argument("translate: " + what); };
  if (options.max_tokens < 0)
    refuse("max_tokens is " + std::to_string(options.max_tokens) + "; it must be 0 or more");
  if (options.batch_rows < 1)
    refuse("batch_rows is " + std::to_string(options.batch_rows) + "; it must be at least 1");
  if (options.sampling && options.beam != 1)
    refuse("sampling is given and beam is " + std::to_string(options.beam) + "; only 1 is drawn");
  static_cast<void>(BeamSearch(options.beam, options.length_penalty, options.eos, 1));
}

}  // namespace

std::vector<Translation> translate(Translator& model, const Texts& sources, const TranslateOptions& options) {
  const at::NoGradGuard no_grad;
  check(options);
  return Run(model, sources, options).all();
}

}  // namespace regard::model

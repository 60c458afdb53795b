#include "regard/model/generate.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <unordered_set>

namespace regard::model {
namespace {

void check(const Sampling& sampling) {
  if (!(sampling.temperature >= 0) || !std::isfinite(sampling.temperature)) {
    throw std::invalid_argument("generate: temperature is " + std::to_string(sampling.temperature) +
                                "; it must be 0 or more");
  }
  if (sampling.top_k < 0) {
    throw std::invalid_argument("generate: top_k is " + std::to_string(sampling.top_k) +
                                "; it must be 0 or more");
  }
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) {
    throw std::invalid_argument("generate: top_p is " + std::to_string(sampling.top_p) +
                                "; it must be above 0 and at most 1");
  }
  if (!(sampling.min_p >= 0 && sampling.min_p <= 1)) {
    throw std::invalid_argument("generate: min_p is " + std::to_string(sampling.min_p) +
                                "; it must be from 0 to 1");
  }
  if (!(sampling.repetition_penalty > 0) || !std::isfinite(sampling.repetition_penalty)) {
    throw std::invalid_argument("generate: repetition_penalty is " +
                                std::to_string(sampling.repetition_penalty) + "; it must be above 0");
  }
}

// Each token once, however often it was seen.
void discourage(std::vector<float>& logits, std::span<const int64_t> seen, double penalty) {
  std::vector<bool> done(logits.size());
  for (const int64_t id : seen) {
    const auto at = static_cast<size_t>(id);
    if (id < 0 || at >= logits.size() || done[at]) continue;
    done[at] = true;
    logits[at] = static_cast<float>(logits[at] > 0 ? logits[at] / penalty : logits[at] * penalty);
  }
}

void check(const Model& model, size_t tokens) {
  if (!model.config().causal || !model.has_head()) {
    throw std::invalid_argument("generate: " + model.config().architecture +
                                " does not predict the next token; use a causal language model");
  }
  if (tokens == 0) throw std::invalid_argument("generate: the text has no tokens; at least one is needed");
  if (static_cast<int64_t>(tokens) > model.config().max_positions) {
    throw std::invalid_argument("generate: the text has " + std::to_string(tokens) +
                                " tokens; the model takes " + std::to_string(model.config().max_positions));
  }
}

at::Tensor as_row(std::span<const int64_t> ids) {
  at::Tensor row = at::empty({1, static_cast<int64_t>(ids.size())}, at::kLong);
  std::copy(ids.begin(), ids.end(), row.mutable_data_ptr<int64_t>());
  return row;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int64_t choose_token(const at::Tensor& logits, const Sampling& sampling, double draw,
                     std::span<const int64_t> seen) {
  check(sampling);
  const at::Tensor flat = logits.reshape({-1}).to(at::kFloat).contiguous();
  const float* values = flat.const_data_ptr<float>();
  const int64_t count = flat.numel();
  std::vector<float> changed;
  if (sampling.repetition_penalty != 1.0 && !seen.empty()) {
    changed.assign(values, values + count);
    discourage(changed, seen, sampling.repetition_penalty);
    values = changed.data();
  }
  if (count == 0) throw std::invalid_argument("generate: there are no logits to choose from");
  if (sampling.temperature == 0) return std::max_element(values, values + count) - values;

  // Most likely first; ties by id, so that a seed gives the same text everywhere.
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [values](int64_t a, int64_t b) {
    return values[a] > values[b] || (values[a] == values[b] && a < b);
  };
  int64_t kept = sampling.top_k > 0 ? std::min(sampling.top_k, count) : count;
  std::partial_sort(order.begin(), order.begin() + kept, order.end(), likelier);

  std::vector<double> weight(static_cast<size_t>(kept));
  double total = 0;
  for (int64_t i = 0; i < kept; ++i) {
    const auto at = static_cast<size_t>(i);
    weight[at] = std::exp((static_cast<double>(values[order[at]]) - static_cast<double>(values[order[0]])) /
                          sampling.temperature);
    total += weight[at];
  }
  if (sampling.top_p < 1) {
    const double wanted = sampling.top_p * total;
    double sum = 0;
    int64_t nucleus = 0;
    while (nucleus < kept && sum < wanted) sum += weight[static_cast<size_t>(nucleus++)];
    kept = std::max<int64_t>(nucleus, 1);
    total = sum;
  }
  if (sampling.min_p > 0) {  // weights fall, the first is 1
    int64_t likely = 1;
    total = weight[0];
    while (likely < kept && weight[static_cast<size_t>(likely)] >= sampling.min_p) {
      total += weight[static_cast<size_t>(likely++)];
    }
    kept = likely;
  }
  double left = draw * total;
  for (int64_t i = 0; i < kept; ++i) {
    left -= weight[static_cast<size_t>(i)];
    if (left < 0) return order[static_cast<size_t>(i)];
  }
  return order[static_cast<size_t>(kept - 1)];
}

Generation generate(Model& model, std::span<const int64_t> prompt, const GenerateOptions& options) {
  // Stronger than no gradients: libtorch then keeps no account of views either, a tenth of a decoded token.
  const c10::InferenceMode inference;
  check(options.sampling);
  check(model, prompt.size());
  if (options.max_tokens < 0 || options.prefill_chunk < 1) {
    throw std::invalid_argument("generate: max_tokens must be 0 or more and prefill_chunk 1 or more");
  }
  Generation result;
  result.prompt_tokens = static_cast<int64_t>(prompt.size());
  if (options.max_tokens == 0) return result;
  // The last token is chosen, never read.
  const int64_t capacity =
      std::min(model.config().max_positions, result.prompt_tokens + options.max_tokens - 1);
  const auto cache = model.make_cache(1, capacity, options.cache_type);
  layer::Context context;
  context.cache = cache.get();
  context.recorder = options.recorder;
  std::mt19937_64 random(options.sampling.seed);
  const auto draw = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };

  auto start = std::chrono::steady_clock::now();
  at::Tensor last;
  for (int64_t done = 0; done < result.prompt_tokens;) {
    const int64_t count = std::min(options.prefill_chunk, result.prompt_tokens - done);
    context.position = done;
    const at::Tensor hidden = model.hidden(
        {as_row(prompt.subspan(static_cast<size_t>(done), static_cast<size_t>(count))), {}, {}}, context);
    last = hidden.select(1, count - 1);
    done += count;
    if (options.on_prompt) options.on_prompt(done, result.prompt_tokens);
  }
  // What the penalty is about, each token once: a long text costs a step no more than a short one.
  std::vector<int64_t> seen;
  std::unordered_set<int64_t> known;
  const auto see = [&](int64_t id) {
    if (options.sampling.repetition_penalty != 1.0 && known.insert(id).second) seen.push_back(id);
  };
  for (const int64_t id : prompt) see(id);
  while (true) {
    const int64_t id = choose_token(model.logits(last), options.sampling, draw(), seen);
    result.ids.push_back(id);
    see(id);
    if (result.ids.size() == 1) {
      result.prompt_seconds = seconds_since(start);
      start = std::chrono::steady_clock::now();
    }
    const bool go_on = !options.on_token || options.on_token(id);
    result.stopped =
        std::find(options.stop_ids.begin(), options.stop_ids.end(), id) != options.stop_ids.end();
    const auto made = static_cast<int64_t>(result.ids.size());
    context.position = result.prompt_tokens + made - 1;
    if (!go_on || result.stopped || made >= options.max_tokens || context.position >= capacity) break;
    last = model.hidden({as_row(std::span(&id, 1)), {}, {}}, context).select(1, 0);
  }
  result.decode_seconds = seconds_since(start);
  return result;
}

std::vector<double> token_losses(Model& model, std::span<const int64_t> ids, layer::Context& context) {
  const at::NoGradGuard no_grad;
  check(model, ids.size());
  const at::Tensor hidden = model.hidden({as_row(ids), {}, {}}, context).squeeze(0);
  std::vector<double> losses;
  const auto predicted = static_cast<int64_t>(ids.size()) - 1;
  // 64 rows of a vocabulary of 150,000 take 40 MB.
  constexpr int64_t kSlice = 64;
  for (int64_t begin = 0; begin < predicted; begin += kSlice) {
    const int64_t count = std::min(kSlice, predicted - begin);
    const at::Tensor logits = model.logits(hidden.narrow(0, begin, count));
    const at::Tensor target =
        as_row(ids.subspan(static_cast<size_t>(begin + 1), static_cast<size_t>(count))).t();
    const at::Tensor loss =
        (at::logsumexp(logits, 1, true) - logits.gather(1, target)).to(at::kDouble).contiguous();
    losses.insert(losses.end(), loss.const_data_ptr<double>(), loss.const_data_ptr<double>() + count);
  }
  return losses;
}

}  // namespace regard::model

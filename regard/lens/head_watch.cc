#include "regard/lens/head_watch.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "regard/attention/observe.h"
#include "regard/autograd/attention.h"
#include "regard/autograd/parallel.h"
#include "regard/autograd/views.h"

namespace regard::lens {
namespace {

// ln of how many keys each row sees [B, L], -infinity for none: queries of zeros weigh all alike.
at::Tensor log_visible(const layer::AttentionCall& call, const autograd::AttentionExtras& extras) {
  at::Tensor lse;
  const at::Tensor q = at::zeros({call.q.size(0), 1, call.q.size(2), call.q.size(3)}, call.q.options());
  const at::Tensor k = call.k.narrow(1, 0, 1);
  autograd::attention(*call.spec, q, k, k, extras, &lse);
  return lse.select(1, 0);
}

// Root mean square of head h's part of the output: its rows of values through its columns of the matrix.
double written(const at::Tensor& mixed, int64_t head, const at::Tensor& joined) {
  const int64_t size = mixed.size(3);
  const at::Tensor rows = mixed.select(1, head).reshape({-1, size});
  return at::matmul(rows, joined.narrow(1, head * size, size).t()).square().mean().sqrt().item<double>();
}

std::string named(const std::vector<const HeadState*>& heads) {
  std::string text;
  constexpr size_t kShown = 4;
  for (size_t i = 0; i < std::min(heads.size(), kShown); ++i) {
    text += (i == 0 ? "" : ", ") + (heads[i]->layer + " head " + std::to_string(heads[i]->head));
  }
  if (heads.size() > kShown) text += " and " + std::to_string(heads.size() - kShown) + " more";
  return text;
}

std::string cause_of_uniform(const HeadHistory& history) {
  char text[240];
  if (history.xavier_deviation > 0 && history.deviation < 0.5 * history.xavier_deviation) {
    std::snprintf(
        text, sizeof text,
        "the likely cause is the start: query and key matrices of deviation %.2g give scores near 0, "
        "Xavier's would be %.2g",
        history.deviation, history.xavier_deviation);
    return text;
  }
  if (history.step < history.warmup) return "the warm-up is not over yet";
  if (history.post_norm && history.warmup == 0)
    return "the likely cause is a norm after each sum without a warm-up; train.warmup of some hundred steps "
           "helps";
  if (history.rate < 0.1 * history.peak_rate)
    return "the likely cause is the learning rate, which has become too small to move them";
  return "the likely cause is a learning rate that does not fit (too low to move the scores, or too high at "
         "the start, without a warm-up)";
}

}  // namespace

void HeadWatch::record(const layer::AttentionCall& call) {
  const at::NoGradGuard no_grad;
  autograd::AttentionExtras extras;
  extras.key_lengths = call.key_lengths;
  extras.query_segments = call.segments;
  extras.key_segments = call.segments;
  attention::Spec spec = *call.spec;
  spec.dropout = 0;
  attention::Operands operands = autograd::operands(call.q, call.k, call.v, extras);
  const int64_t B = call.q.size(0), H = call.q.size(1), L = call.q.size(2);
  const at::Tensor mixed = at::empty({B, H, L, call.v.size(3)}, call.q.options());
  const at::Tensor lse = at::empty({B, H, L}, at::kFloat);
  operands.out = autograd::mutable_view(mixed, "out");
  operands.lse = autograd::lse_view(lse);
  const attention::Observation seen =
      attention::observe({.entropy = true, .row_max = true}, spec, operands, autograd::at_parallel());
  layer::AttentionCall plain = call;
  plain.spec = &spec;
  const at::Tensor visible = log_visible(plain, extras).contiguous();
  const auto* keys = visible.const_data_ptr<float>();
  const auto* sums = lse.const_data_ptr<float>();
  std::vector<HeadState> heads;
  double largest = 0;
  for (int64_t h = 0; h < H; ++h) {
    HeadState state = state_of(call.layer, h);
    int64_t rows = 0, open = 0;
    for (int64_t b = 0; b < B; ++b)
      for (int64_t i = 0; i < L; ++i) {
        const auto at = static_cast<size_t>((b * H + h) * L + i);
        const auto log_keys = static_cast<double>(keys[b * L + i]);
        if (!std::isfinite(log_keys)) continue;
        state.entropy += static_cast<double>(seen.entropy[at]);
        ++rows;
        if (log_keys < 0.5) continue;  // one key: nothing to choose
        state.share += static_cast<double>(seen.entropy[at]) / log_keys;
        state.spread += static_cast<double>(seen.row_max[at]) - (static_cast<double>(sums[at]) - log_keys);
        ++open;
      }
    if (rows > 0) state.entropy /= static_cast<double>(rows);
    if (open > 0) {
      state.share /= static_cast<double>(open);
      state.spread /= static_cast<double>(open);
    }
    if (call.joined.defined()) {
      state.contribution = written(mixed.to(at::kFloat), h, call.joined.detach());
      largest = std::max(largest, state.contribution);
    }
    heads.push_back(state);
  }
  if (largest > 0) {
    for (HeadState& head : heads) head.contribution /= largest;
  }
  add(heads);
}

void HeadWatch::record(int64_t layer, const at::Tensor& weights) {
  const at::Tensor p = weights.to(at::kDouble);
  const at::Tensor entropy = -at::xlogy(p, p).sum(-1).mean(-1);
  const double log_keys = std::log(static_cast<double>(p.size(2)));
  const at::Tensor peak = std::get<0>(p.max(-1)).log().mean(-1);
  std::vector<HeadState> heads;
  for (int64_t h = 0; h < p.size(0); ++h) {
    HeadState& head = heads.emplace_back(state_of(layer, h));
    head.entropy = entropy[h].item<double>();
    head.share = log_keys > 0 ? head.entropy / log_keys : 0;
    head.spread = peak[h].item<double>() + log_keys;  // ln p is the logit less the row's log sum exp
  }
  add(heads);
}

HeadState HeadWatch::state_of(int64_t layer, int64_t head) const {
  HeadState state;
  state.layer = names_.empty() ? "layer " + std::to_string(layer) : names_.at(static_cast<size_t>(layer));
  state.head = head;
  return state;
}

void HeadWatch::add(const std::vector<HeadState>& call) {
  const auto calls = static_cast<double>(++calls_[call.front().layer]);
  auto known = std::find_if(heads_.begin(), heads_.end(),
                            [&](const HeadState& head) { return head.layer == call.front().layer; });
  if (known == heads_.end()) {
    heads_.insert(heads_.end(), call.begin(), call.end());
    return;
  }
  for (const HeadState& head : call) {
    for (double HeadState::*number :
         {&HeadState::entropy, &HeadState::share, &HeadState::spread, &HeadState::contribution})
      (*known).*number += (head.*number - (*known).*number) / calls;
    ++known;
  }
}

std::optional<std::string> head_alarm(const std::vector<HeadState>& heads, const HeadHistory& history) {
  std::vector<const HeadState*> uniform, dead;
  for (const HeadState& head : heads) {
    if (head.share > kUniformShare) uniform.push_back(&head);
    if (head.contribution < kDeadContribution) dead.push_back(&head);
  }
  std::string text;
  if (!uniform.empty()) {
    text = std::to_string(uniform.size()) + " of " + std::to_string(heads.size()) +
           " heads look at all keys alike (entropy above " + "0.98 ln n): " + named(uniform) + "; " +
           cause_of_uniform(history);
  }
  if (!dead.empty()) {
    text += (text.empty() ? "" : "; ") + std::to_string(dead.size()) + " of " + std::to_string(heads.size()) +
            " heads add next to nothing (below 1 % of their layer's strongest): " + named(dead) +
            "; the likely cause is more heads than the task needs, or a weight decay that wins over the loss";
  }
  return text.empty() ? std::nullopt : std::optional(text);
}

}  // namespace regard::lens

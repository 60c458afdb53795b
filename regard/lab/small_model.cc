#include "regard/lab/small_model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <chrono>
#include <cmath>
#include <sstream>
#include <stdexcept>

#include "regard/lab/one_thread.h"
#include "regard/layer/dropout.h"
#include "regard/train/generated_task.h"

namespace regard::lab {
namespace {

constexpr int64_t kTexts = 4096;  // of a task; then they come again

// "3 1 2" -> 2, 0, 1.
void append_symbols(const std::string& text, std::vector<int64_t>& ids) {
  std::istringstream words(text);
  int64_t symbol = 0;
  while (words >> symbol) ids.push_back(symbol - 1);
}

at::Tensor split_heads(const at::Tensor& x, int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

}  // namespace

SmallModel::SmallModel(const SmallModelOptions& options) : options_(options) {
  SmallModelOptions& o = options_;
  if (o.width % o.heads != 0)
    throw std::invalid_argument("SmallModel: width must be a multiple of heads; they are " +
                                std::to_string(o.width) + " and " + std::to_string(o.heads));
  if (o.key_size == 0) o.key_size = o.width / o.heads;
  at::manual_seed(o.seed);
  tokens_ = register_parameter("tokens", at::randn({o.vocabulary, o.width}));
  positions_ = register_parameter("positions", at::randn({o.length, o.width}));
  for (int64_t i = 0; i < o.layers; ++i) {
    const std::string at = "block" + std::to_string(i) + "_";
    const auto linear = [&](const char* name, int64_t in, int64_t out) {
      return register_module(at + name, std::make_shared<layer::Linear>(in, out));
    };
    const auto norm = [&](const char* name) {
      return register_module(at + name,
                             std::make_shared<layer::Norm>(kernel::NormForm::layer, 1e-5, o.width));
    };
    Block block;
    block.q = linear("q", o.width, o.heads * o.key_size);
    block.k = linear("k", o.width, o.heads * o.key_size);
    block.v = linear("v", o.width, o.width);
    block.out = linear("out", o.width, o.width);
    block.score =
        register_module(at + "score", std::make_shared<layer::Score>(layer::ScoreOptions{
                                          .kind = o.score, .heads = o.heads, .query_size = o.key_size}));
    block.attention_norm = norm("attention_norm");
    if (o.feed_forward) {
      block.up = linear("up", o.width, 4 * o.width);
      block.down = linear("down", 4 * o.width, o.width);
      block.feed_forward_norm = norm("feed_forward_norm");
    }
    blocks_.push_back(std::move(block));
  }
  last_norm_ =
      register_module("last_norm", std::make_shared<layer::Norm>(kernel::NormForm::layer, 1e-5, o.width));
  head_ = register_module("head", std::make_shared<layer::Linear>(o.width, o.classes));
  if (o.deviation > 0) {
    const at::NoGradGuard no_gradients;
    for (const auto& parameter : named())
      if (parameter.value.dim() > 1 && parameter.name != "tokens" && parameter.name != "positions")
        parameter.value.normal_(0, o.deviation);
  }
}

at::Tensor SmallModel::attend(const Block& block, const at::Tensor& x, layer::Context& context,
                              std::vector<at::Tensor>* maps) const {
  const at::Tensor q = split_heads(block.q->forward(x), options_.heads);
  const at::Tensor k = split_heads(block.k->forward(x), options_.heads);
  const at::Tensor v = split_heads(block.v->forward(x), options_.heads);
  at::Tensor mixed;
  if (maps != nullptr) {
    if (options_.score != layer::ScoreKind::scaled_dot)
      throw std::invalid_argument("SmallModel: maps are those of scaled_dot");
    maps->push_back(
        (at::matmul(q, k.transpose(-1, -2)) / std::sqrt(static_cast<double>(q.size(-1)))).softmax(-1));
    mixed = at::matmul(maps->back(), v);
  } else if (context.training && options_.dropout > 0 && options_.score == layer::ScoreKind::scaled_dot) {
    attention::Spec spec;
    autograd::AttentionExtras extras;
    layer::drop_weights(options_.dropout, context, spec, extras);
    mixed = autograd::attention(spec, q, k, v, extras);
  } else {
    mixed = block.score->forward(q, k, v);
  }
  const at::Tensor joined = mixed.transpose(1, 2).reshape({x.size(0), x.size(1), options_.width});
  return layer::dropout(block.out->forward(joined), options_.dropout, context);
}

at::Tensor SmallModel::forward(const at::Tensor& ids, int64_t pass, std::vector<at::Tensor>* maps) const {
  layer::Context context;
  context.training = pass >= 0;
  context.dropout_seed = options_.seed * 1'000'003 + static_cast<uint64_t>(pass + 1);
  at::Tensor x = at::embedding(tokens_, ids) + positions_.narrow(0, 0, ids.size(1));
  const bool pre = options_.norm == layer::NormPlace::pre;
  for (const Block& block : blocks_) {
    const at::Tensor attended = attend(block, pre ? block.attention_norm->forward(x) : x, context, maps);
    x = pre ? x + attended : block.attention_norm->forward(x + attended);
    if (!block.up) continue;
    const at::Tensor hidden = at::gelu(block.up->forward(pre ? block.feed_forward_norm->forward(x) : x));
    const at::Tensor fed = layer::dropout(block.down->forward(hidden), options_.dropout, context);
    x = pre ? x + fed : block.feed_forward_norm->forward(x + fed);
  }
  return head_->forward(pre ? last_norm_->forward(x) : x);
}

std::vector<train::Parameters::Named> SmallModel::named() const {
  std::vector<train::Parameters::Named> out;
  for (const auto& parameter : named_parameters()) out.push_back({parameter.key(), parameter.value()});
  return out;
}

int64_t SmallModel::count() const {
  int64_t sum = 0;
  for (const auto& parameter : named()) sum += parameter.value.numel();
  return sum;
}

at::Tensor loss_of(const at::Tensor& logits, const Batch& batch) {
  const int64_t outputs = batch.targets.size(-1);
  return at::cross_entropy_loss(logits.reshape({-1, logits.size(-1) / outputs}), batch.targets.reshape({-1}));
}

double accuracy(const SmallModel& model, const Batch& batch) {
  const at::NoGradGuard no_gradients;
  const at::Tensor logits = model.forward(batch.ids);
  const int64_t outputs = batch.targets.size(-1);
  const at::Tensor best = logits.reshape({-1, logits.size(-1) / outputs}).argmax(-1);
  return (best == batch.targets.reshape({-1})).to(at::kDouble).mean().item<double>();
}

double gradient_norm(const SmallModel& model, const Batch& batch, const std::string& parameter) {
  const auto named = model.named();
  const auto clear = [&] {
    for (const auto& one : named) one.value.mutable_grad() = at::Tensor();
  };
  clear();
  loss_of(model.forward(batch.ids), batch).backward();
  double norm = -1;
  for (const auto& one : named)
    if (one.name == parameter) norm = one.value.grad().norm().item<double>();
  clear();
  if (norm < 0) throw std::invalid_argument("SmallModel has no parameter '" + parameter + "'");
  return norm;
}

double train_small(SmallModel& model, const std::function<Batch()>& next, const SmallTraining& training) {
  const OneThread one_thread;
  train::OptimizerOptions options;
  options.kind = train::OptimizerOptions::Kind::adam;
  train::Optimizer optimizer(options, model.named());
  train::Schedule schedule = training.schedule;
  schedule.steps = training.steps;
  const auto begin = std::chrono::steady_clock::now();
  int64_t step = 0;
  while (step < training.steps) {
    const Batch batch = next();
    optimizer.zero_gradients();
    std::vector<at::Tensor> maps;
    const at::Tensor logits = model.forward(batch.ids, step, training.term ? &maps : nullptr);
    at::Tensor loss = loss_of(logits, batch);
    const auto value = loss.item<double>();
    if (!std::isfinite(value)) throw std::runtime_error("the loss of a small model is no number");
    if (training.term) loss = loss + training.term(maps);
    loss.backward();
    optimizer.clip(training.clip);
    optimizer.step(schedule.at(step));
    ++step;
    if (training.after && !training.after(step, value)) break;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return seconds / static_cast<double>(step);
}

Reversals::Reversals(int64_t length, int64_t vocabulary, uint64_t seed, uint64_t stream) {
  const std::vector<train::TextPair> texts = train::generate({.kind = train::GeneratedTask::Kind::reverse,
                                                              .symbols = vocabulary,
                                                              .shortest = length,
                                                              .longest = length,
                                                              .seed = seed},
                                                             kTexts, stream);
  std::vector<int64_t> ids, targets;
  for (const train::TextPair& text : texts) {
    append_symbols(text.source, ids);
    append_symbols(text.references.front(), targets);
  }
  ids_ = at::tensor(ids, at::kLong).view({kTexts, length});
  targets_ = at::tensor(targets, at::kLong).view({kTexts, length, 1});
}

Batch Reversals::next(int64_t batch) {
  if (at_ + batch > kTexts) at_ = 0;
  const Batch out{ids_.narrow(0, at_, batch), targets_.narrow(0, at_, batch)};
  at_ += batch;
  return out;
}

Reversing learn_to_reverse(SmallModel& model, int64_t steps) {
  const SmallModelOptions& o = model.options();
  Reversals task(o.length, o.vocabulary, o.seed, 0);
  const Batch test = Reversals(o.length, o.vocabulary, o.seed, 1).next(64);
  Reversing found{.steps = static_cast<double>(steps)};
  SmallTraining training;
  training.steps = steps;
  bool reached = false;
  training.after = [&](int64_t step, double) {
    if (step % 5 == 0 && !reached && accuracy(model, test) >= 0.95) {
      reached = true;
      found.steps = static_cast<double>(step);
    }
    return true;
  };
  found.seconds = train_small(
      model, [&] { return task.next(32); }, training);
  found.accuracy = accuracy(model, test);
  return found;
}

double entropy_share(const at::Tensor& map) {
  const at::Tensor weights = map.detach();
  const at::Tensor entropy = -(weights * weights.clamp_min(1e-30).log()).sum(-1);
  return entropy.mean().item<double>() / std::log(static_cast<double>(map.size(-1)));
}

}  // namespace regard::lab

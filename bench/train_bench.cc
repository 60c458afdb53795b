#include "bench/train_bench.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <memory>

#include "bench/machine.h"
#include "bench/plain_llama.h"
#include "bench/tensor_memory.h"
#include "regard/layer/context.h"
#include "regard/model/decoder.h"
#include "regard/train/optimizer.h"
#include "regard/train/parameters.h"

namespace regard::bench {
namespace {

constexpr double kRate = 1e-3, kDecay = 0.1, kClip = 1.0;
constexpr int64_t kVocabulary = 256, kHeadSize = 32;

model::TransformerConfig config_of(const TrainCase& c) {
  model::TransformerConfig config;
  config.architecture = "llama";
  config.causal = true;
  config.norm = kernel::NormForm::rms;
  config.gated = config.rotary = config.tied_head = true;
  config.activation = layer::Activation::silu;
  config.qkv_bias = config.out_bias = config.feed_forward_bias = false;
  config.layers = c.layers;
  config.width = c.width;
  config.heads = config.kv_heads = c.width / kHeadSize;
  config.head_size = kHeadSize;
  config.feed_forward = (c.width * 8 / 3 + 31) / 32 * 32;
  config.vocabulary = kVocabulary;
  config.max_positions = c.length;
  return config;
}

// What `regard train` does in a step, without files.
class Ours {
 public:
  explicit Ours(const TrainCase& c)
      : checkpoint_(c.checkpoint),
        parameters_({}, "model.", 1),
        model_(model::make_decoder(config_of(c), parameters_, model::Naming::hugging_face)),
        optimizer_({.weight_decay = kDecay}, parameters_.all()) {}

  double step(const at::Tensor& ids, const at::Tensor& next) {
    optimizer_.zero_gradients();
    layer::Context context;
    context.training = true;
    context.checkpoint_layers = checkpoint_;
    const at::Tensor logits =
        model_->logits(model_->hidden({.ids = ids, .type_ids = {}, .lengths = {}}, context));
    const at::Tensor loss = at::cross_entropy_loss(logits.flatten(0, 1), next.flatten());
    loss.backward();
    optimizer_.clip(kClip);
    optimizer_.step(kRate);
    return loss.item<double>();
  }
  std::vector<train::Parameters::Named> published() const { return parameters_.published(); }

 private:
  bool checkpoint_;
  train::Parameters parameters_;
  std::unique_ptr<model::Transformer> model_;
  train::Optimizer optimizer_;
};

class Peer {
 public:
  Peer(const TrainCase& c, const std::map<std::string, at::Tensor>& weights)
      : model_({.layers = c.layers,
                .width = c.width,
                .heads = c.width / kHeadSize,
                .feed_forward = config_of(c).feed_forward,
                .vocabulary = kVocabulary},
               weights),
        optimizer_(groups(model_), torch::optim::AdamWOptions(kRate).weight_decay(kDecay)) {}

  double step(const at::Tensor& ids, const at::Tensor& next) {
    optimizer_.zero_grad();
    const at::Tensor loss = model_.loss(ids, next);
    loss.backward();
    torch::nn::utils::clip_grad_norm_(model_.parameters(), kClip);
    optimizer_.step();
    return loss.item<double>();
  }

 private:
  static std::vector<torch::optim::OptimizerParamGroup> groups(const PlainLlama& model) {
    std::vector<at::Tensor> matrices, vectors;
    for (const at::Tensor& parameter : model.parameters())
      (parameter.dim() > 1 ? matrices : vectors).push_back(parameter);
    std::vector<torch::optim::OptimizerParamGroup> out;
    out.emplace_back(matrices);
    out.emplace_back(vectors, std::make_unique<torch::optim::AdamWOptions>(
                                  torch::optim::AdamWOptions(kRate).weight_decay(0.0)));
    return out;
  }

  PlainLlama model_;
  torch::optim::AdamW optimizer_;
};

}  // namespace

std::vector<TrainCase> train_cases(bool quick) {
  std::vector<TrainCase> cases;
  for (const int64_t length : {64, 256, 1024})
    for (const bool checkpoint : {false, true})
      cases.push_back({.length = length, .checkpoint = checkpoint, .layers = quick ? 2 : 4});
  return cases;
}

nlohmann::ordered_json run_train_case(const TrainCase& c, double seconds, int threads) {
  const int before = at::get_num_threads();
  at::set_num_threads(threads);
  at::manual_seed(1);
  TensorMemory memory;
  const at::Tensor text = at::randint(kVocabulary, {c.tokens / c.length, c.length + 1}, at::kLong);
  const at::Tensor ids = text.narrow(1, 0, c.length).contiguous(),
                   next = text.narrow(1, 1, c.length).contiguous();
  Ours ours(c);
  std::map<std::string, at::Tensor> weights;
  for (const auto& named : ours.published()) weights.emplace(named.name, named.value);
  Peer peer(c, weights);
  struct Side {
    std::function<double()> step;
    double best = std::numeric_limits<double>::infinity();
    int64_t bytes = 0;
    double first_loss = 0;
  };
  Side sides[] = {{[&] { return ours.step(ids, next); }}, {[&] { return peer.step(ids, next); }}};
  for (Side& side : sides) side.first_loss = side.step();
  const double begin = wall_seconds();
  for (int round = 0; round < 3 || wall_seconds() - begin < seconds; ++round) {
    for (Side& side : sides) {
      memory.reset_peak();
      const int64_t stays = memory.bytes();
      const double start = threads == 1 ? thread_seconds() : wall_seconds();
      side.step();
      side.best = std::min(side.best, (threads == 1 ? thread_seconds() : wall_seconds()) - start);
      side.bytes = std::max(side.bytes, memory.peak() - stays);
    }
    if (round > 0 && wall_seconds() - begin > 4 * seconds) break;
  }
  at::set_num_threads(before);
  const Side &of_ours = sides[0], &of_peer = sides[1];
  nlohmann::ordered_json row;
  row["op"] = "train_step";
  row["form"] = c.checkpoint ? "checkpointed" : "plain";
  row["mask"] = "causal";
  row["dtype"] = "f32";
  row["B"] = c.tokens / c.length;
  row["Lq"] = c.length;
  row["layers"] = c.layers;
  row["width"] = c.width;
  row["threads"] = threads;
  row["ours_ms"] = of_ours.best * 1e3;
  row["peer"] = "torch";
  row["peer_ms"] = of_peer.best * 1e3;
  row["ratio"] = of_peer.best / of_ours.best;
  row["tokens_per_second"] = static_cast<double>(c.tokens) / of_ours.best;
  row["ours_mbytes"] = static_cast<double>(of_ours.bytes) / 1e6;
  row["peer_mbytes"] = static_cast<double>(of_peer.bytes) / 1e6;
  row["loss_difference"] = std::abs(of_ours.first_loss - of_peer.first_loss) / of_peer.first_loss;
  return row;
}

}  // namespace regard::bench

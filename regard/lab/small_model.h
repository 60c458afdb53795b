#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "regard/lab/draws.h"
#include "regard/layer/basic.h"
#include "regard/layer/block.h"
#include "regard/layer/context.h"
#include "regard/layer/score.h"
#include "regard/train/optimizer.h"
#include "regard/train/schedule.h"

// Models so small that an experiment trains dozens of them: tokens and positions, blocks of attention and
// feed-forward, a projection to classes at every position. Their parts are those of layer/.
namespace regard::lab {

struct SmallModelOptions {
  int64_t vocabulary = 16;
  int64_t classes = 16;  // at each position
  int64_t length = 16;
  int64_t width = 64;
  int64_t heads = 1;
  int64_t key_size = 0;  // of each head; 0: width / heads
  int64_t layers = 1;
  layer::ScoreKind score = layer::ScoreKind::scaled_dot;
  layer::NormPlace norm = layer::NormPlace::pre;
  double dropout = 0;    // of attention weights and of what each block adds
  double deviation = 0;  // matrices begin with N(0, deviation^2); 0: Xavier uniform
  bool feed_forward = true;
  uint64_t seed = 0;  // of the first weights and of dropout
};

class SmallModel : public torch::nn::Module {
 public:
  // Throws std::invalid_argument as the layers do: heads must divide width.
  explicit SmallModel(const SmallModelOptions& options);

  // ids: [B, L] int64, L <= length -> logits [B, L, classes]. pass: of training, which dropout depends on;
  // below 0: none. maps, if given, become the attention weights of each layer, [B, H, L, L], with their graph
  // (scaled_dot only).
  at::Tensor forward(const at::Tensor& ids, int64_t pass = -1, std::vector<at::Tensor>* maps = nullptr) const;

  std::vector<train::Parameters::Named> named() const;
  int64_t count() const;  // of numbers in its parameters
  const SmallModelOptions& options() const { return options_; }

 private:
  struct Block {
    std::shared_ptr<layer::Linear> q, k, v, out, up, down;
    std::shared_ptr<layer::Score> score;
    std::shared_ptr<layer::Norm> attention_norm, feed_forward_norm;
  };
  at::Tensor attend(const Block& block, const at::Tensor& x, layer::Context& context,
                    std::vector<at::Tensor>* maps) const;

  SmallModelOptions options_;
  at::Tensor tokens_, positions_;
  std::vector<Block> blocks_;
  std::shared_ptr<layer::Norm> last_norm_;
  std::shared_ptr<layer::Linear> head_;
};

struct Batch {
  at::Tensor ids;      // [B, L] int64
  at::Tensor targets;  // [B, L, outputs] int64: classes of each output, each a block of equally many logits
};

// The mean cross entropy of all outputs, and the share of them that is right.
at::Tensor loss_of(const at::Tensor& logits, const Batch& batch);
double accuracy(const SmallModel& model, const Batch& batch);

struct SmallTraining {
  int64_t steps = 100;
  train::Schedule schedule{.kind = train::Schedule::Kind::constant, .rate = 3e-3};  // of `steps` above
  double clip = 1;
  // Called after each step (1, 2, ...) with the loss; false ends the training.
  std::function<bool(int64_t step, double loss)> after;
  // Added to the loss: from the layers' maps.
  std::function<at::Tensor(const std::vector<at::Tensor>& maps)> term;
};

// Adam on batches from `next`, on one thread. Returns the seconds of a step. Throws std::runtime_error for a
// loss that is no number.
double train_small(SmallModel& model, const std::function<Batch()>& next, const SmallTraining& training);

// The norm of one parameter's gradient on a batch.
double gradient_norm(const SmallModel& model, const Batch& batch, const std::string& parameter);

// Texts of the generated task "reverse", one after the other: the target of each position is the token as far
// from the end as it is from the beginning.
class Reversals {
 public:
  // stream: 0 to train on, 1 to validate, as train::generate().
  Reversals(int64_t length, int64_t vocabulary, uint64_t seed, uint64_t stream);
  Batch next(int64_t batch);

 private:
  int64_t at_ = 0;
  at::Tensor ids_, targets_;  // [texts, length]
};

// A model that is trained to reverse: what is right after the last step, the step at which 95 % of unseen
// texts' letters were (the last one where that was never so), and the seconds of a step.
struct Reversing {
  double accuracy = 0, steps = 0, seconds = 0;
};
// Batches of 32 of the model's vocabulary and length.
Reversing learn_to_reverse(SmallModel& model, int64_t steps);

// Mean over heads and rows of entropy / ln(keys), of maps as SmallModel gives them.
double entropy_share(const at::Tensor& map);

}  // namespace regard::lab

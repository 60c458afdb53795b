// What attention heads do while a model is trained: a few numbers a head, taken from a forward pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "regard/layer/recorder.h"

namespace regard::lens {

struct HeadState {
  std::string layer;  // "layer 3", or as the model names it: "encoder 0", "cross 0"
  int64_t head = 0;
  double entropy = 0;  // mean over rows, nats
  double share = 0;    // mean of entropy / ln(visible keys) over rows that see two keys or more: 1 is uniform
  double spread = 0;   // mean of the largest logit above the row's log mean exp: how far it is from uniform
  // Root mean square of what the head adds to the residual stream, over the largest of its layer; 1 where the
  // layer does not say how its heads are joined.
  double contribution = 1;
};

// Told of a forward pass (layer::Context::recorder), it keeps these numbers alone: entropy comes from the
// same kernels as attention, in one pass, without a map. The numbers do not depend on the threads. Of several
// passes they are the means.
class HeadWatch final : public layer::Recorder {
 public:
  // names: of the layers, by AttentionCall::layer; none: "layer 0", ...
  explicit HeadWatch(std::vector<std::string> names = {}) : names_(std::move(names)) {}

  bool wants(int64_t /*layer*/) const override { return true; }
  void record(const layer::AttentionCall& call) override;
  // The same from weights [heads, rows, keys], of which every row sees all keys.
  void record(int64_t layer, const at::Tensor& weights);

  const std::vector<HeadState>& heads() const { return heads_; }

 private:
  HeadState state_of(int64_t layer, int64_t head) const;
  void add(const std::vector<HeadState>& call);

  std::vector<std::string> names_;
  std::vector<HeadState> heads_;
  std::map<std::string, int64_t> calls_;  // of each layer
};

// How a training began, as far as an alarm's cause depends on it.
struct HeadHistory {
  int64_t step = 0;
  int64_t warmup = 0;           // steps
  double rate = 0;              // now
  double peak_rate = 0;         // the highest of the schedule
  double deviation = 0;         // of the query and key matrices at first
  double xavier_deviation = 0;  // sqrt(2 / (in + out)) of them
  bool post_norm = false;
};

// Above this share of ln n a head counts as uniform, below this contribution as dead.
inline constexpr double kUniformShare = 0.98;
inline constexpr double kDeadContribution = 0.01;

// One sentence that names the heads that are uniform or dead and the likely cause; nothing where all is well.
std::optional<std::string> head_alarm(const std::vector<HeadState>& heads, const HeadHistory& history);

}  // namespace regard::lens

#include "regard/layer/checkpointed_block.h"

#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include "regard/layer/checkpoint.h"

namespace regard::layer {
namespace {

// What a block makes, and what it leaves in the loss terms.
std::vector<at::Tensor> results_of(const Block& block, const at::Tensor& x, int64_t layer, const Pass& pass) {
  LossTerms* const outer = pass.context->terms;
  LossTerms own = outer != nullptr ? *outer : LossTerms();
  own.sum = at::Tensor();
  if (outer != nullptr) pass.context->terms = &own;
  std::vector<at::Tensor> results = {block.forward(x, layer, pass)};
  pass.context->terms = outer;
  if (own.sum.defined()) results.push_back(own.sum);
  return results;
}

}  // namespace

// The second run gets a context of its own, as it was before the first: the same random numbers, and nothing
// told twice. The states of another text are an input too: they have a graph.
at::Tensor checkpointed(const std::shared_ptr<const Block>& block, const at::Tensor& x, int64_t layer,
                        const Pass& pass) {
  Context before = *pass.context;
  before.recorder = nullptr;
  before.cache = nullptr;
  LossTerms weights = before.terms != nullptr ? *before.terms : LossTerms();
  weights.sum = at::Tensor();
  const RopeTable table = pass.rope != nullptr ? *pass.rope : RopeTable();
  Memory memory = pass.memory != nullptr ? *pass.memory : Memory();
  std::vector<at::Tensor> inputs = {x};
  if (memory.states.defined()) inputs.push_back(std::exchange(memory.states, at::Tensor()));
  auto again = [=](const std::vector<at::Tensor>& in) mutable {
    Pass replay = pass;
    replay.context = &before;
    if (before.terms != nullptr) before.terms = &weights;
    if (replay.rope != nullptr) replay.rope = &table;
    if (in.size() > 1) memory.states = in[1];
    if (replay.memory != nullptr) replay.memory = &memory;
    return results_of(*block, in[0], layer, replay);
  };
  const std::vector<at::Tensor> results = checkpoint(
      inputs, [&](const std::vector<at::Tensor>& in) { return results_of(*block, in[0], layer, pass); },
      std::move(again));
  if (results.size() > 1) pass.context->terms->add(results[1]);
  return results.front();
}

}  // namespace regard::layer

#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>

#include "bench/attention_bench.h"
#include "bench/attention_mask.h"
#include "regard/kernel/forward.h"
#include "regard/kernel/parallel.h"

// The two sides of a row of the benchmark, each with everything it needs already allocated.
namespace regard::bench {

struct AttentionInputs {
  at::Tensor q, k, v, grad_out;
};

class Side {
 public:
  virtual ~Side() = default;
  virtual void run() = 0;
  // What the sides are compared by: the output, or the gradient of q where there is a backward.
  virtual const at::Tensor& result() const = 0;
};

// As AttentionCase::peer says.
std::unique_ptr<Side> make_peer(const AttentionCase& c, const AttentionInputs& inputs);

// Ours, with what the table tells of it.
class OurSide : public Side {
 public:
  explicit OurSide(int threads);
  kernel::Parallel& parallel() { return *parallel_; }
  virtual std::optional<size_t> extra_bytes() const { return std::nullopt; }  // scratch, where it is known
  // Share of the square's tiles that are computed.
  virtual double live_tiles(const CaseMask& mask) const {
    return mask.live_tiles(kernel::ForwardTiling().query_rows);
  }

 private:
  std::unique_ptr<kernel::Parallel> parallel_;
};

std::unique_ptr<OurSide> make_ours(const AttentionCase& c, const AttentionInputs& inputs);

}  // namespace regard::bench

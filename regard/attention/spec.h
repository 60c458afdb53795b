#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "regard/attention/mask.h"
#include "regard/kernel/view.h"

// What an attention call means, apart from its data.
namespace regard::attention {

using kernel::AnyView;
using kernel::ConstAnyView;
using kernel::View;

// Order: scale, softcap, bias, mask, softmax (with sinks), dropout, times V (docs/semantics.md).
struct Spec {
  std::optional<double> scale;  // default 1 / sqrt(Dk); kernels round it to float32
  float softcap = 0.0F;         // c > 0: c tanh(logit / c); 0: none
  Mask mask;
  double dropout = 0;  // probability in [0, 1) that a weight becomes 0, rounded to 1/65536; the others
                       // are divided by 1 - that
  // A row's bits depend on its q, the keys and the values alone, also where few rows would go to the decode
  // kernel, which splits keys: decoding then equals prefill bit for bit, more slowly.
  bool row_invariant = false;
  // ALiBi (slopes given): distance is |position(i) - j| with this alignment.
  Align alibi_align = Align::bottom_right;

  bool operator==(const Spec& other) const = default;
  std::string to_string() const;
};

// The data of a call. Views are borrowed; strides are free; zero strides broadcast inputs.
// Query head h reads KV head h / (Hq / Hkv). Dk and Dv are free; Lq, Lk and Dk may be 0.
struct Operands {
  ConstAnyView q;                   // [B, Hq, Lq, Dk]
  ConstAnyView k;                   // [B, Hkv, Lk, Dk]
  ConstAnyView v;                   // [B, Hkv, Lk, Dv]
  AnyView out;                      // [B, Hq, Lq, Dv]; f32 or the inputs' type; overlaps no input
  View<float> lse;                  // [B, Hq, Lq, 1]; optional
  View<const float> bias;           // broadcasts to [B, Hq, Lq, Lk]; added to the logits; optional
  View<const float> slopes;         // [B or 1, Hq, 1, 1] ALiBi; optional
  View<const float> sinks;          // [B or 1, Hq, 1, 1]; optional
  View<const uint8_t> dense_mask;   // broadcasts to [B, Hq, Lq, Lk], nonzero = may attend; with Mask::dense()
  View<const int64_t> key_lengths;  // [B or 1, 1, 1, 1]; in [0, Lk]; with Mask::key_lengths()
  View<const int32_t> query_segments;  // [B or 1, 1, 1, Lq]; with Mask::segments()
  View<const int32_t> key_segments;    // [B or 1, 1, 1, Lk]; likewise
  View<const uint8_t> block_mask;      // broadcasts to [B, Hq, ceil(Lq / block_rows), ceil(Lk / block_keys)],
                                       // nonzero = may attend; with Mask::blocks()
  uint64_t dropout_seed = 0;        // with Spec::dropout: the same seed and offset drop the same weights, see
  uint64_t dropout_offset = 0;      // kernel::Dropout
  int64_t dropout_first_batch = 0;  // what dropout counts the first batch entry as
};

// Throw std::invalid_argument that names the operand, its value and what is allowed.
// What attention() needs: inputs and out.
void check(const Spec& spec, const Operands& operands);
// What weights(), logits() and reference() need: out and lse are not looked at; v may be absent.
void check_inputs(const Spec& spec, const Operands& operands);
// check() without a look at any data: what a Plan needs.
void check_form(const Spec& spec, const Operands& operands);

}  // namespace regard::attention

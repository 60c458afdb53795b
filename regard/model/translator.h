#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "regard/layer/context.h"

namespace regard::model {

// Texts to translate, right-padded to one length.
struct Source {
  at::Tensor ids;      // [B, S] int64
  at::Tensor lengths;  // [B] int64; undefined: no padding
};

// A model that reads one text and writes another: an encoder, and a decoder that may attend to what the
// encoder made of the text (cross-attention). It knows ids only; which of them begin, end and pad a text is
// the caller's.
class Translator {
 public:
  virtual ~Translator() = default;

  virtual int64_t vocabulary() const = 0;     // of the target: columns of the logits
  virtual int64_t max_positions() const = 0;  // the longest source or target that it takes
  // How many attention heads look at the source, over all layers of the decoder; 0: it has no attention. The
  // rows of Step::weights; head h of cross layer l is row l * heads + h.
  virtual int64_t cross_heads() const = 0;
  // What the context's recorder is told of, in the order of the numbers in AttentionCall::layer: "encoder 0",
  // "decoder 0", "cross 0", ... Empty where no layer is an attention call over q and k.
  virtual std::vector<std::string> attention_names() const = 0;

  // Teacher forcing: target [B, T] int64 begins with the id that begins a text; row t of the result [B, T,
  // width] has seen target[:, 0..t] and stands for what follows. Padding at the end of a target changes
  // nothing before it.
  virtual at::Tensor hidden(const Source& source, const at::Tensor& target, layer::Context& context) = 0;
  // [..., width] -> [..., vocabulary]
  virtual at::Tensor logits(const at::Tensor& hidden) = 0;

  // A decoding that has begun: what was made of the sources and what each of N rows has written so far. At
  // first a row for each source.
  class Decoding {
   public:
    virtual ~Decoding() = default;
    // Row i goes on from what row rows[i] was (beam search); rows: [N'] int64, any number of each. Shared
    // parts are not copied.
    virtual void select(const at::Tensor& rows) = 0;
  };
  // capacity: positions that each row may write, at most max_positions().
  virtual std::unique_ptr<Decoding> begin(const Source& source, int64_t capacity,
                                          layer::Context& context) = 0;

  struct Step {
    at::Tensor logits;   // [N, vocabulary]
    at::Tensor weights;  // [N, cross_heads, S] if asked for: where each head looked; undefined otherwise
  };
  // Writes ids [N] int64 behind each row; the logits are of what follows. Equals hidden() and logits() over
  // the whole text within rounding, at the cost of one position.
  virtual Step step(Decoding& decoding, const at::Tensor& ids, bool want_weights = false) = 0;
};

}  // namespace regard::model

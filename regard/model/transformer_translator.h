#pragma once

#include <memory>

#include "regard/model/translator.h"
#include "regard/model/translator_config.h"
#include "regard/model/weight_source.h"

namespace regard::model {

// The encoder-decoder Transformer (Vaswani et al. 2017, arXiv 1706.03762) as "The Annotated Transformer" has
// it or as the paper does, by its config: blocks with biases everywhere, embeddings times sqrt(width) plus
// sinusoids, dropout on those, on what each part adds to the stream, inside the feed-forward and on attention
// weights; a last norm of each stack where norms come first; a generator with a bias of its own, or where it
// is tied the embedding without one. Parameters carry the names of published translators (Marian):
// "model.encoder.layers.0.self_attn.q_proj.weight", ...; throws as WeightSource does.
std::unique_ptr<Translator> make_transformer_translator(const TransformerTranslatorConfig& config,
                                                        const WeightSource& weights);

}  // namespace regard::model

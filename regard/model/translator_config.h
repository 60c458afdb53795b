#pragma once

#include <cstdint>
#include <string>

#include "regard/io/json.h"
#include "regard/kernel/norm.h"
#include "regard/layer/options.h"

namespace regard::model {

// What config.json says of every translator. One vocabulary serves source and target.
struct TranslatorConfig {
  int64_t vocabulary = 0;       // vocab_size
  int64_t max_positions = 512;  // max_position_embeddings
  int64_t width = 512;          // hidden_size: of the stream; of an RNN: of the decoder's state
  bool tied = false;            // tie_word_embeddings: source, target and generator share one table
  double dropout = 0;
  // Ids around a text: a target begins with bos and ends with eos, a source ends with eos.
  int64_t bos = 0, eos = 0, pad = 0;  // bos_token_id, ...
};

// model_type "transformer_translator". The defaults are those of "The Annotated Transformer" (Harvard NLP,
// 2022), which normalises first; norm_place post and norm layer make the first Transformer (Vaswani et al.
// 2017, arXiv 1706.03762).
struct TransformerTranslatorConfig : TranslatorConfig {
  int64_t encoder_layers = 6;                              // num_encoder_layers
  int64_t decoder_layers = 6;                              // num_decoder_layers
  int64_t heads = 8;                                       // num_attention_heads
  int64_t feed_forward = 2048;                             // intermediate_size
  layer::Activation activation = layer::Activation::relu;  // hidden_act
  layer::NormPlace norm_place = layer::NormPlace::pre;     // norm_place: pre, post
  kernel::NormForm norm = kernel::NormForm::harvard;       // norm: layer, harvard
  double epsilon = 1e-6;                                   // norm_eps
  double attention_dropout = 0;                            // of attention weights
};

// How an RNN decoder looks at the source. additive: Bahdanau et al. 2015 (arXiv 1409.0473), from the state
// before the step, what it finds entering the recurrence. dot, general, concat: Luong et al. 2015 (arXiv
// 1508.04025), from the state after the step.
enum class RnnAttention : uint8_t { none, additive, dot, general, concat };

// model_type "rnn_translator".
struct RnnTranslatorConfig : TranslatorConfig {
  int64_t embedding = 256;                      // embedding_size
  int64_t encoder_width = 256;                  // encoder_hidden_size: of each direction
  int64_t encoder_layers = 1;                   // num_encoder_layers
  int64_t decoder_layers = 1;                   // num_decoder_layers
  int64_t readout = 256;                        // readout_size: between the decoder's state and the generator
  int64_t attention_size = 256;                 // of the hidden layer of additive and concat
  RnnAttention attention = RnnAttention::none;  // attention: none, additive, dot, general, concat
  // input_feeding (Luong, section 3.3): the last readout enters the recurrence. dot, general, concat only.
  bool input_feeding = false;
};

// Whether config.json's model_type is one of the two.
bool is_translator_config(const io::Json& config, const std::string& source);

// Throw io::Error naming the field, what it holds and what is allowed; unknown fields are left alone.
TransformerTranslatorConfig read_transformer_translator(const io::Json& json, const std::string& source);
RnnTranslatorConfig read_rnn_translator(const io::Json& json, const std::string& source);

// What the readers read.
io::Json to_json(const TransformerTranslatorConfig& config);
io::Json to_json(const RnnTranslatorConfig& config);

}  // namespace regard::model

#pragma once

#include <memory>

#include "regard/model/translator.h"
#include "regard/model/translator_config.h"
#include "regard/model/weight_source.h"

namespace regard::model {

// An RNN encoder-decoder, with attention as a part that can be left out. Its GRU has libtorch's form (gates
// r, z, n one above the other, r inside the product of n: n = tanh(W x + b + r (U h + c)), h' = (1 - z) n +
// z h), not that of Cho et al. 2014.
//
// Encoder: GRU layers over the text from both sides, states [forward; backward]. Decoder: layer i begins as
// tanh(W_i [last forward; first backward] + b_i) of the encoder's last layer. A readout, tanh(U s + V y + b)
// of the state after the step and the embedded last word, goes to the generator. Without attention the
// decoder knows the text by its first state alone (Sutskever et al. 2014, arXiv 1409.3215).
//
// With attention C c of what it found joins the readout, which thus is Luong's attentional vector, and stands
// for Bahdanau's maxout; additive attention asks with the last layer's state before the step, and what it
// finds enters all gates of the first layer (Bahdanau et al. 2015, appendix A.2.2); dot, general and concat
// ask with the state after it (Luong et al. 2015), and with input_feeding the last readout enters the gates.
// The parameters of attention are asked for last: without it they are the same ones with the same first
// numbers.
//
// Dropout in training: of embedded words, of states between two layers, in the encoder and the decoder, and
// of the readout.
//
// Parameters: "encoder.layers.0.forward.input.weight", ...; throws as WeightSource does.
std::unique_ptr<Translator> make_rnn_translator(const RnnTranslatorConfig& config,
                                                const WeightSource& weights);

}  // namespace regard::model

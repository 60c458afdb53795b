#pragma once

#include <memory>

#include "regard/model/transformer.h"
#include "regard/model/weight_source.h"

namespace regard::model {

// BERT from Hugging Face's names, with or without "bert." in front, norms as weight and bias or gamma and
// beta. The masked-language-model head and the pooler come along where the file has them. Throws io::Error
// for a tensor that is missing or has another shape.
std::unique_ptr<Transformer> make_bert(const TransformerConfig& config, const WeightSource& weights);

}  // namespace regard::model

#pragma once

#include <memory>

#include "regard/io/model_folder.h"
#include "regard/model/model.h"

namespace regard::model {

// The model of an open Hugging Face folder, without a tokenizer. Throws io::Error.
std::unique_ptr<Model> load_weights(std::shared_ptr<const io::ModelFolder> folder);

}  // namespace regard::model

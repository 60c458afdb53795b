#pragma once

#include <memory>
#include <string>

#include "regard/text/tokenizer.h"

namespace regard::model {

// The tokenizer of a model without its weights. Names and errors as in load().
std::unique_ptr<text::Tokenizer> load_tokenizer(const std::string& name_or_path);

}  // namespace regard::model

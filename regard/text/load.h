// A tokenizer from what a model is published as.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "regard/io/e5_file.h"
#include "regard/io/gguf.h"
#include "regard/io/model_folder.h"
#include "regard/text/tokenizer.h"

namespace regard::text {

// All throw io::Error for files that are damaged or hold a kind of tokenizer, normaliser or split that is not
// known: it is named, never skipped. The tokenizer copies what it needs; the file may go.

// tokenizer.json, else vocab.txt (WordPiece). Wishes for truncation and padding in the file are not followed:
// they belong to whoever calls. Roles and the chat template come from tokenizer_config.json.
std::unique_ptr<Tokenizer> load_tokenizer(const io::ModelFolder& folder);
// tokenizer.ggml.*: byte-level BPE ("gpt2") with the splits gpt-2, smollm, llama-bpe and qwen2.
std::unique_ptr<Tokenizer> load_tokenizer(const io::Gguf& gguf);
std::unique_ptr<Tokenizer> load_tokenizer(const io::E5File& file);

// The text of a tokenizer.json, and of a tokenizer_config.json (may be empty); `source` names it in errors.
std::unique_ptr<Tokenizer> tokenizer_from_json(std::string_view json, const std::string& source,
                                               std::string_view config_json = {});
// The text of a vocab.txt: one piece a line, BERT's normalisation.
std::unique_ptr<Tokenizer> tokenizer_from_vocab_txt(std::string_view text, const std::string& source,
                                                    bool lowercase);

}  // namespace regard::text

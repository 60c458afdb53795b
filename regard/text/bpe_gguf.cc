// Byte-level BPE from GGUF metadata.
#include <string>
#include <utility>

#include "regard/io/error.h"
#include "regard/text/bpe_merge_list.h"
#include "regard/text/byte_bpe.h"
#include "regard/text/load.h"
#include "regard/text/utf8.h"

namespace regard::text {
namespace {

// tokenizer.ggml.token_type
enum GgufTokenType : int64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

std::string at_index(std::string_view key, size_t index) {
  return std::string(key) + "[" + std::to_string(index) + "]";
}

// "<0x0A>", the only spelling of a byte token.
bool is_byte_token(std::string_view piece) {
  const auto hex = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F') || (c >= 'a' && c <= 'f');
  };
  return piece.size() == 6 && piece.starts_with("<0x") && hex(piece[3]) && hex(piece[4]) && piece[5] == '>';
}

void check_length(const io::Gguf& gguf, std::string_view key, size_t got, size_t tokens) {
  if (got != tokens)
    io::fail(gguf.source(), std::string(key) + " has " + std::to_string(got) +
                                " entries, but tokenizer.ggml.tokens has " + std::to_string(tokens));
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const io::Gguf& gguf) {
  constexpr std::string_view kTokens = "tokenizer.ggml.tokens", kTypes = "tokenizer.ggml.token_type",
                             kScores = "tokenizer.ggml.scores", kMerges = "tokenizer.ggml.merges";
  const std::string_view model = gguf.require_string("tokenizer.ggml.model");
  if (model != "gpt2")
    io::fail(gguf.source(),
             "tokenizer.ggml.model " + io::quoted(model) + " is not known; known is gpt2 (byte-level BPE)");
  const std::string_view pre = gguf.require_string("tokenizer.ggml.pre");
  const auto split = known_split_name(pre);
  if (!split)
    io::fail(gguf.source(), "tokenizer.ggml.pre " + io::quoted(pre) +
                                " is not known; known are gpt-2, smollm, llama-bpe, qwen2");

  const auto& tokens = gguf.require_strings(kTokens);
  const auto count = int64_t(tokens.size());
  if (count == 0) io::fail(gguf.source(), std::string(kTokens) + " is empty");
  std::vector<int64_t> types(tokens.size(), kNormal);
  if (gguf.has(kTypes)) {
    types = gguf.require_ints(kTypes, 0, 6);
    check_length(gguf, kTypes, types.size(), tokens.size());
  }
  if (gguf.has(kScores)) check_length(gguf, kScores, gguf.require_floats(kScores).size(), tokens.size());

  Vocabulary vocabulary(gguf.source(), tokens.size());
  std::vector<AddedToken> added;
  std::vector<uint8_t> special(tokens.size(), 0);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (find_invalid_utf8(tokens[i])) io::fail(gguf.source(), at_index(kTokens, i) + " is not valid UTF-8");
    if (types[i] == kByte && is_byte_token(tokens[i]))
      io::fail(gguf.source(), at_index(kTokens, i) + " is a byte token, which byte-level BPE does not have");
    if (types[i] == kByte)
      io::fail(gguf.source(), at_index(kTokens, i) + " is " + io::quoted(tokens[i]) +
                                  "; a byte token must be <0x00> to <0xFF>");
    vocabulary.add(tokens[i], int64_t(i));
    const bool is_special = types[i] == kControl || types[i] == kUnknown;
    special[i] = is_special;
    if ((is_special || types[i] == kUserDefined) && tokens[i].empty())
      io::fail(gguf.source(), at_index(kTokens, i) + " is empty");
    if (is_special || types[i] == kUserDefined)
      added.push_back({.content = std::string(tokens[i]), .id = int64_t(i), .special = is_special});
  }
  vocabulary.finish();

  ByteBpeConfig config;
  config.split = *split;
  // Llama 3 takes whole known words as they are; Qwen2's published tokenizer composes its text. Neither is
  // written in the file.
  config.ignore_merges = *split == PreSplit::llama3;
  config.nfc = *split == PreSplit::qwen2;
  const auto& merges = gguf.require_strings(kMerges);
  for (size_t i = 0; i < merges.size(); ++i) add_written_merge(merges[i], i, vocabulary, config.merges);

  TokenizerParts parts{std::move(vocabulary), AddedTokens(std::move(added)), {}, {}, std::move(special), {}};
  const auto role = [&](std::string_view key) -> std::optional<TokenId> {
    if (!gguf.has(key)) return std::nullopt;
    return gguf.require_int(key, 0, count - 1);
  };
  parts.ids.bos = role("tokenizer.ggml.bos_token_id");
  parts.ids.eos = role("tokenizer.ggml.eos_token_id");
  parts.ids.unk = role("tokenizer.ggml.unknown_token_id");
  parts.ids.pad = role("tokenizer.ggml.padding_token_id");
  parts.ids.sep = role("tokenizer.ggml.seperator_token_id");  // spelled so in the format
  parts.ids.cls = role("tokenizer.ggml.cls_token_id");
  parts.ids.mask = role("tokenizer.ggml.mask_token_id");
  using Kind = TemplateItem::Kind;
  const auto around = [&](bool wanted, const std::optional<TokenId>& id,
                          std::string_view key) -> std::vector<TemplateItem> {
    if (!wanted) return {};
    if (!id)
      io::fail(gguf.source(),
               "adds a special token at an end of each text, but " + std::string(key) + " is missing");
    return {{Kind::special, *id, parts.vocabulary.piece(*id), 0}};
  };
  const auto front = around(gguf.bool_or("tokenizer.ggml.add_bos_token", *split == PreSplit::llama3),
                            parts.ids.bos, "tokenizer.ggml.bos_token_id");
  const auto back = around(gguf.bool_or("tokenizer.ggml.add_eos_token", false), parts.ids.eos,
                           "tokenizer.ggml.eos_token_id");
  for (auto* items : {&parts.around.single, &parts.around.pair}) {
    items->insert(items->begin(), front.begin(), front.end());
    items->insert(items->end(), back.begin(), back.end());
  }
  if (gguf.has("tokenizer.chat_template")) parts.chat_jinja = gguf.require_string("tokenizer.chat_template");
  return std::make_unique<ByteBpe>(std::move(parts), std::move(config), false);
}

}  // namespace regard::text

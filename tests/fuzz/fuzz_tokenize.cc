#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "regard/text/display.h"
#include "regard/text/load.h"
#include "regard/text/utf8.h"
#include "regard/text/words.h"
#include "tests/fuzz/check.h"

namespace {

using namespace regard;

std::vector<std::unique_ptr<text::Tokenizer>> tokenizers() {
  std::vector<std::unique_ptr<text::Tokenizer>> out;
  for (const std::string name : {"bpe_gpt2", "bpe_llama3", "bpe_qwen2", "unigram"}) {
    std::ifstream file(REGARD_GOLDEN_DIR "/tokenizers-small/" + name + ".json");
    const std::string json{std::istreambuf_iterator<char>(file), {}};
    out.push_back(text::tokenizer_from_json(json, name));
  }
  out.push_back(text::tokenizer_from_vocab_txt("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n##a\nb\n,\n\xE6\x88\x91\n",
                                               "vocab.txt", true));
  return out;
}

}  // namespace

// Any bytes as a text, through every kind of tokenizer and everything that shows it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto all = tokenizers();
  const std::string_view input = fuzz::as_text(data, size);
  fuzz::require(text::display_width(text::fit_to_width(input, 10)) <= 10);
  fuzz::require(text::to_ascii(input).size() <= 2 * size + 2);
  const auto invalid = text::find_invalid_utf8(input);
  for (size_t i = 0; i < all.size(); ++i) {
    const text::Tokenizer& tokenizer = *all[i];
    try {
      const text::Encoding encoding = tokenizer.encode(input, {.add_special = false, .parse_special = false});
      fuzz::require(!invalid);
      for (const text::Span& span : encoding.offsets)
        fuzz::require(span.begin <= span.end && span.end <= size);
      const std::string decoded = tokenizer.decode(encoding.ids);
      fuzz::require(!text::find_invalid_utf8(decoded));
      if (i < 2) fuzz::require(decoded == input);
      tokenizer.display_pieces(encoding, input);
      text::group_words(encoding, input);
    } catch (const text::InvalidUtf8& error) {
      fuzz::require(invalid == error.offset());
    }
    try {
      tokenizer.encode_pieces(input);
    } catch (const std::invalid_argument&) {
    }
  }
  return 0;
}

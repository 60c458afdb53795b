#include <string>

#include "regard/io/error.h"
#include "regard/text/load.h"
#include "regard/text/utf8.h"
#include "tests/fuzz/check.h"

// A tokenizer.json; what is accepted must encode and decode a text of everything.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace regard;
  std::unique_ptr<text::Tokenizer> tokenizer;
  try {
    tokenizer = text::tokenizer_from_json(fuzz::as_text(data, size), "input");
  } catch (const io::Error&) {
    return 0;
  }
  const std::string sample =
      "ab, The animal\n didn't <s>  e\xCC\x81 \xE6\x88\x91 \xF0\x9F\xA6\x8A 123 \xE2\x96\x81 [SEP]";
  for (const bool parse_special : {false, true}) {
    const text::Encoding encoding = tokenizer->encode(sample, {.parse_special = parse_special});
    for (const text::Span& span : encoding.offsets)
      fuzz::require(span.begin <= span.end && span.end <= sample.size());
    fuzz::require(!text::find_invalid_utf8(tokenizer->decode(encoding.ids, false)));
    tokenizer->display_pieces(encoding, sample);
  }
  tokenizer->encode_pair(sample, "", {.max_length = 64});
  return 0;
}

#include "regard/io/e5_file.h"
#include "regard/io/error.h"
#include "tests/fuzz/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace regard;
  try {
    const auto file = io::E5File::parse(fuzz::as_bytes(data, size), "input");
    fuzz::check_tensors(file.tensors(), fuzz::as_bytes(data, size));
    const io::E5Tokenizer& tokenizer = file.tokenizer();
    fuzz::require(tokenizer.pieces.size() == tokenizer.scores.size());
    fuzz::require(static_cast<size_t>(tokenizer.unknown) < tokenizer.pieces.size());
    size_t total = 0;
    for (const std::string_view piece : tokenizer.pieces) total += piece.size();
    fuzz::require(total <= size);
  } catch (const io::Error&) {
  }
  return 0;
}

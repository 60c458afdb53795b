#include "regard/io/error.h"
#include "regard/io/idx.h"
#include "tests/fuzz/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace regard;
  try {
    const io::Idx idx = io::parse_idx(fuzz::as_bytes(data, size), "input", 1 << 24);
    const std::vector<std::byte> again = io::encode_idx(idx);
    fuzz::require(io::parse_idx(again, "again") == idx);
  } catch (const io::Error&) {
  }
  return 0;
}

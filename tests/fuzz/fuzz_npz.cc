#include "regard/io/error.h"
#include "regard/io/npz.h"
#include "tests/fuzz/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace regard;
  try {
    const auto file = io::Npz::parse(fuzz::as_bytes(data, size), "input", 1 << 24);
    fuzz::check_tensors(file.tensors());
  } catch (const io::Error&) {
  }
  return 0;
}

#include "regard/io/error.h"
#include "regard/io/safetensors.h"
#include "tests/fuzz/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace regard;
  try {
    const auto file = io::Safetensors::parse(fuzz::as_bytes(data, size), "input");
    fuzz::check_tensors(file.tensors(), fuzz::as_bytes(data, size));
    size_t total = 0;
    for (const io::Tensor& tensor : file.tensors()) {
      fuzz::require(file.find(tensor.name) == &tensor);
      total += tensor.bytes.size();
    }
    fuzz::require(total <= size - 8);
  } catch (const io::Error&) {
  }
  return 0;
}

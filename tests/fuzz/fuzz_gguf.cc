#include "regard/io/error.h"
#include "regard/io/gguf.h"
#include "tests/fuzz/check.h"

namespace {

// Each getter either gives a value or an Error.
template <class Getter>
void ask(Getter getter) {
  try {
    getter();
  } catch (const regard::io::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace regard;
  try {
    const auto file = io::Gguf::parse(fuzz::as_bytes(data, size), "input");
    fuzz::check_tensors(file.tensors(), fuzz::as_bytes(data, size));
    for (const std::string_view key : file.keys()) {
      ask([&] { file.require_int(key, INT64_MIN, INT64_MAX); });
      ask([&] { file.require_float(key); });
      ask([&] { file.require_bool(key); });
      ask([&] { file.require_string(key); });
      ask([&] { file.require_strings(key); });
      ask([&] { file.require_ints(key, 0, 100); });
      ask([&] { file.require_floats(key); });
    }
    for (const io::Tensor& tensor : file.tensors()) {
      if (tensor.rows() % 2 == 0 && tensor.elements() < 1'000'000) io::unpermute_rows(tensor, 1);
    }
  } catch (const io::Error&) {
  }
  return 0;
}

#include "regard/cli/kv_dtype.h"

#include <map>
#include <string>

namespace regard::cli {

void add_kv_dtype(CLI::App& verb, kernel::CacheType& type) {
  using kernel::CacheType;
  static const std::map<std::string, CacheType> kNames = {
      {"f32", CacheType::f32}, {"bf16", CacheType::bf16}, {"f16", CacheType::f16}, {"int8", CacheType::i8}};
  verb.add_option("--kv-dtype", type,
                  "Keep keys and values as f32, bf16, f16 or int8 (less memory, less exact)")
      ->transform(CLI::CheckedTransformer(kNames))
      ->option_text("TYPE [f32]");
}

}  // namespace regard::cli

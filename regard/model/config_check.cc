#include "regard/model/config_check.h"

#include "regard/io/error.h"

namespace regard::model {

void refuse_architecture(const std::string& source, const std::string& field, std::string_view got) {
  std::string known;
  for (const std::string& name : known_architectures()) known += (known.empty() ? "" : ", ") + name;
  io::fail(source, field + " is " + io::quoted(got) + "; the known architectures are " + known);
}

void check_heads(const TransformerConfig& config, const std::string& source, const std::string& heads_field,
                 const std::string& kv_field) {
  if (config.heads % config.kv_heads != 0) {
    io::fail(source, kv_field + " is " + std::to_string(config.kv_heads) + "; it must divide " + heads_field +
                         ", " + std::to_string(config.heads));
  }
  if (config.rotary && config.head_size % 2 != 0) {
    io::fail(source,
             "the head size is " + std::to_string(config.head_size) + "; rotary positions need an even one");
  }
}

int64_t head_size_of(const std::string& source, int64_t width, int64_t heads,
                     const std::string& heads_field) {
  if (width % heads != 0) {
    io::fail(source, heads_field + " is " + std::to_string(heads) + "; it must divide the width, " +
                         std::to_string(width));
  }
  return width / heads;
}

}  // namespace regard::model

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "bench/attention_bench.h"

namespace regard::bench {
namespace {

using kernel::DType;

[[noreturn]] void refuse(const std::string& column, const std::string& value, const std::string& allowed) {
  throw std::invalid_argument("bench: " + column + " is " + value + "; allowed: " + allowed);
}

DType dtype_named(const std::string& name) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    if (name == kernel::name(dtype)) return dtype;
  }
  refuse("dtype", name, "f32, bf16, f16");
}

template <size_t kCount>
std::string one_of(const std::string& column, const nlohmann::json& value,
                   const std::array<const char*, kCount>& allowed) {
  std::string all;
  for (const char* name : allowed) {
    if (value == name) return name;
    all += (all.empty() ? "" : ", ") + std::string(name);
  }
  refuse(column, value.dump(), all);
}

int64_t count(const std::string& column, const nlohmann::json& value) {
  if (!value.is_number_integer() || value.get<int64_t>() < 1 || value.get<int64_t>() > int64_t{1} << 24) {
    refuse(column, value.dump(), "1 to 16777216");
  }
  return value.get<int64_t>();
}

// What each mask needs, and what it has no use for.
void check_mask(const AttentionCase& c) {
  const auto needs = [&](const char* column, int64_t value, bool wanted, const std::string& masks) {
    if ((value > 0) != wanted) {
      refuse(column, std::to_string(value), "at least 1 with mask " + masks + ", absent otherwise");
    }
  };
  needs("window", c.window, c.mask == "window", "window");
  needs("documents", c.documents, c.mask == "segments" || c.mask == "documents", "segments or documents");
  needs("period", c.period, c.mask == "stride", "stride");
  const bool square =
      c.mask == "segments" || c.mask == "documents" || c.mask == "bigbird" || c.mask == "neighbourhood";
  if (square && c.queries != c.keys) {
    refuse("Lq", std::to_string(c.queries), "Lk = " + std::to_string(c.keys) + " with mask " + c.mask);
  }
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(c.queries))));
  if (c.mask == "neighbourhood" && (side * side != c.queries || side < 13)) {
    refuse("Lq", std::to_string(c.queries), "a square of at least 13 with mask neighbourhood");
  }
  if (c.documents > c.keys) {
    refuse("documents", std::to_string(c.documents), "at most Lk = " + std::to_string(c.keys));
  }
}

}  // namespace

void add_sizes(const AttentionCase& c, nlohmann::ordered_json& columns) {
  columns["dtype"] = kernel::name(c.dtype);
  columns["B"] = c.batch;
  columns["Hq"] = c.heads;
  columns["Hkv"] = c.kv_heads;
  columns["Lq"] = c.queries;
  columns["Lk"] = c.keys;
  columns["Dk"] = c.key_features;
  columns["Dv"] = c.value_features;
  columns["threads"] = c.threads;
}

nlohmann::ordered_json case_to_json(const AttentionCase& c) {
  nlohmann::ordered_json columns;
  columns["op"] = c.op;
  columns["mask"] = c.mask;
  add_sizes(c, columns);
  if (c.window > 0) columns["window"] = c.window;
  if (c.documents > 0) columns["documents"] = c.documents;
  if (c.period > 0) columns["period"] = c.period;
  if (!c.pages.empty()) columns["pages"] = c.pages;
  if (c.ragged) columns["ragged"] = true;
  if (c.dropout > 0) columns["dropout"] = c.dropout;
  if (c.top_k > 0) columns["top_k"] = c.top_k;
  return columns;
}

AttentionCase case_from_json(const nlohmann::json& columns) {
  if (!columns.is_object()) refuse("the case", columns.dump(), "a JSON object");
  AttentionCase c;
  c.queries = c.keys = 1024;
  for (const auto& [column, value] : columns.items()) {
    if (column == "op") {
      c.op =
          one_of(column, value,
                 std::array{"forward", "backward", "forward_backward", "decode", "observe", "custom", "mla"});
    } else if (column == "mask") {
      c.mask = one_of(column, value,
                      std::array{"none", "causal", "window", "segments", "documents", "stride", "bigbird",
                                 "longformer", "neighbourhood"});
    } else if (column == "dtype") {
      c.dtype = c.peer_dtype = dtype_named(value.is_string() ? value.get<std::string>() : value.dump());
    } else if (column == "dropout") {
      if (!value.is_number() || value.get<double>() < 0 || value.get<double>() >= 1) {
        refuse(column, value.dump(), "at least 0 and below 1");
      }
      c.dropout = value;
    } else if (column == "B") {
      c.batch = count(column, value);
    } else if (column == "Hq") {
      c.heads = count(column, value);
    } else if (column == "Hkv") {
      c.kv_heads = count(column, value);
    } else if (column == "Lq") {
      c.queries = count(column, value);
    } else if (column == "Lk") {
      c.keys = count(column, value);
    } else if (column == "Dk") {
      c.key_features = count(column, value);
    } else if (column == "Dv") {
      c.value_features = count(column, value);
    } else if (column == "threads") {
      c.threads = static_cast<int>(std::min<int64_t>(count(column, value), 1024));
    } else if (column == "window") {
      c.window = count(column, value);
    } else if (column == "documents") {
      c.documents = count(column, value);
    } else if (column == "period") {
      c.period = count(column, value);
    } else if (column == "pages") {
      c.pages = one_of(column, value, std::array{"f32", "bf16", "f16", "i8"});
    } else if (column == "ragged") {
      if (!value.is_boolean()) refuse(column, value.dump(), "true or false");
      c.ragged = value;
    } else if (column == "top_k") {
      c.top_k = count(column, value);
    } else {
      refuse("column", column,
             "op, mask, dtype, B, Hq, Hkv, Lq, Lk, Dk, Dv, threads, window, documents, period, pages, "
             "ragged, dropout, top_k");
    }
  }
  check_mask(c);
  if (c.heads % c.kv_heads != 0) {
    refuse("Hkv", std::to_string(c.kv_heads), "a divisor of Hq = " + std::to_string(c.heads));
  }
  if (c.top_k > c.keys) refuse("top_k", std::to_string(c.top_k), "at most Lk = " + std::to_string(c.keys));
  if (!c.pages.empty() && c.op != "decode" && c.op != "mla")
    refuse("pages", c.pages, "with op decode or mla");
  if (c.ragged && c.pages.empty()) refuse("ragged", "true", "with pages");
  if (c.op == "mla") {
    c.peer = "naive";
    if (c.key_features <= c.value_features || c.kv_heads != 1 || c.mask != "causal") {
      refuse("op", "mla",
             "with mask causal, Hkv = 1, Dv = the rank of the latents and Dk = that and the rotated key's "
             "numbers, e.g. 576 and 512");
    }
  }
  return c;
}

}  // namespace regard::bench

#include <algorithm>
#include <array>
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
      c.op = one_of(column, value,
                    std::array{"forward", "backward", "forward_backward", "decode", "observe", "custom"});
    } else if (column == "mask") {
      c.mask = one_of(column, value, std::array{"none", "causal", "window"});
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
    } else if (column == "top_k") {
      c.top_k = count(column, value);
    } else {
      refuse("column", column,
             "op, mask, dtype, B, Hq, Hkv, Lq, Lk, Dk, Dv, threads, window, dropout, top_k");
    }
  }
  if ((c.mask == "window") != (c.window > 0)) {
    refuse("window", std::to_string(c.window), "at least 1 with mask window, absent otherwise");
  }
  if (c.heads % c.kv_heads != 0) {
    refuse("Hkv", std::to_string(c.kv_heads), "a divisor of Hq = " + std::to_string(c.heads));
  }
  if (c.top_k > c.keys) refuse("top_k", std::to_string(c.top_k), "at most Lk = " + std::to_string(c.keys));
  return c;
}

}  // namespace regard::bench

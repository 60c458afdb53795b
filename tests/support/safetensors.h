#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "regard/kernel/types.h"

// Reads trusted reference files in tests of rooms that have no io/ above them. Not a parser for strangers'
// files.
namespace regard::testing {

struct Array {
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;

  int64_t count() const {
    int64_t n = 1;
    for (const int64_t size : shape) n *= size;
    return n;
  }

  template <class T>
  std::vector<T> to() const {
    std::vector<T> values(count());
    for (int64_t i = 0; i < count(); ++i) values[i] = element<T>(i);
    return values;
  }

 private:
  template <class Stored>
  Stored stored(int64_t i) const {
    Stored value;
    std::memcpy(&value, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    return value;
  }
  template <class T>
  T element(int64_t i) const {
    if (dtype == "F64") return static_cast<T>(stored<double>(i));
    if (dtype == "F32") return static_cast<T>(stored<float>(i));
    if (dtype == "F16") return static_cast<T>(kernel::to_float(stored<kernel::f16>(i)));
    if (dtype == "BF16") return static_cast<T>(kernel::to_float(stored<kernel::bf16>(i)));
    if (dtype == "I64") return static_cast<T>(stored<int64_t>(i));
    if (dtype == "I32") return static_cast<T>(stored<int32_t>(i));
    if (dtype == "U8" || dtype == "BOOL") return static_cast<T>(stored<uint8_t>(i));
    throw std::runtime_error("a reference file holds type " + dtype);
  }
};

class SafeTensors {
 public:
  explicit SafeTensors(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    uint64_t header_size = 0;
    if (!file.read(reinterpret_cast<char*>(&header_size), 8)) throw std::runtime_error("cannot read " + path);
    std::string header(header_size, ' ');
    file.read(header.data(), static_cast<std::streamsize>(header_size));
    const nlohmann::json json = nlohmann::json::parse(header);
    for (const auto& [name, entry] : json.items()) {
      if (name == "__metadata__") {
        metadata_ = entry;
        continue;
      }
      const int64_t begin = entry["data_offsets"][0];
      const int64_t end = entry["data_offsets"][1];
      Array array{entry["dtype"], entry["shape"], std::vector<std::byte>(end - begin)};
      file.seekg(static_cast<std::streamoff>(8 + header_size) + begin);
      file.read(reinterpret_cast<char*>(array.bytes.data()), end - begin);
      if (!file) throw std::runtime_error(path + " ends early");
      arrays_.emplace(name, std::move(array));
    }
  }

  bool has(const std::string& name) const { return arrays_.contains(name); }
  const Array& operator[](const std::string& name) const { return arrays_.at(name); }
  const nlohmann::json& metadata() const { return metadata_; }

 private:
  std::map<std::string, Array> arrays_;
  nlohmann::json metadata_;
};

}  // namespace regard::testing

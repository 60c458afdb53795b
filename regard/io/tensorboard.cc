#include "regard/io/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>

#include "regard/io/atomic_file.h"
#include "regard/io/error.h"

namespace regard::io {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // reflected
constexpr size_t kHead = 12, kFoot = 4;       // of a record: length and its sum; the sum of the data

std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value & 1U) != 0 ? (value >> 1U) ^ kPolynomial : value >> 1U;
    table[i] = value;
  }
  return table;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// Least significant byte first.
template <class T>
void put_fixed(T value, std::string& out) {
  for (size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>((value >> (8 * i)) & 0xFFU);
}

template <class T>
T get_fixed(std::string_view from) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(static_cast<uint8_t>(from[i])) << (8 * i);
  return value;
}

void put_varint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7U) out += static_cast<char>((value & 0x7FU) | 0x80U);
  out += static_cast<char>(value);
}

enum class Wire : uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void put_key(uint32_t field, Wire wire, std::string& out) {
  put_varint(field << 3U | static_cast<uint32_t>(wire), out);
}

void put_bytes(uint32_t field, std::string_view value, std::string& out) {
  put_key(field, Wire::bytes, out);
  put_varint(value.size(), out);
  out += value;
}

std::string framed(const std::string& data) {
  std::string record;
  put_fixed<uint64_t>(data.size(), record);
  put_fixed(masked_crc32c(bytes_of(record)), record);
  record += data;
  put_fixed(masked_crc32c(bytes_of(data)), record);
  return record;
}

// An Event's time and step: the fields before its content.
std::string event_head(double seconds, int64_t step) {
  std::string event;
  put_key(1, Wire::fixed64, event);
  put_fixed(std::bit_cast<uint64_t>(seconds), event);
  if (step != 0) {
    put_key(2, Wire::varint, event);
    put_varint(static_cast<uint64_t>(step), event);
  }
  return event;
}

// What event_head() wrote.
int64_t step_of(std::string_view event) {
  constexpr size_t kTime = 9;
  if (event.size() <= kTime || event[kTime] != 0x10) return 0;
  uint64_t step = 0;
  uint32_t shift = 0;
  for (size_t i = kTime + 1; i < event.size() && shift < 64; ++i, shift += 7) {
    const auto byte = static_cast<uint8_t>(event[i]);
    step |= static_cast<uint64_t>(byte & 0x7FU) << shift;
    if (byte < 0x80) break;
  }
  return static_cast<int64_t>(step);
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The whole records in front whose steps are at most `step`; empty where the file is no event file.
size_t kept_bytes(std::string_view file, int64_t step) {
  size_t at = 0;
  while (file.size() - at >= kHead + kFoot) {
    const auto size = get_fixed<uint64_t>(file.substr(at));
    if (get_fixed<uint32_t>(file.substr(at + 8)) != masked_crc32c(bytes_of(file.substr(at, 8)))) break;
    if (size > file.size() - at - kHead - kFoot) break;
    const std::string_view data = file.substr(at + kHead, size);
    if (get_fixed<uint32_t>(file.substr(at + kHead + size)) != masked_crc32c(bytes_of(data))) break;
    if (step_of(data) > step) break;
    at += kHead + size + kFoot;
  }
  return at;
}

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes) {
  static const std::array<uint32_t, 256> kTable = make_table();
  uint32_t sum = 0xFFFFFFFF;
  for (const std::byte byte : bytes) sum = kTable[(sum ^ static_cast<uint32_t>(byte)) & 0xFFU] ^ (sum >> 8U);
  return ~sum;
}

uint32_t masked_crc32c(std::span<const std::byte> bytes) {
  const uint32_t sum = crc32c(bytes);
  return (sum >> 15U | sum << 17U) + 0xA282EAD8U;
}

std::string event_record(double seconds, int64_t step, const std::vector<Scalar>& scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    put_bytes(1, scalar.tag, value);
    put_key(2, Wire::fixed32, value);
    put_fixed(std::bit_cast<uint32_t>(scalar.value), value);
    put_bytes(1, value, summary);
  }
  std::string event = event_head(seconds, step);
  put_bytes(5, summary, event);
  return framed(event);
}

EventFile::EventFile(std::filesystem::path path, int64_t step) : path_(std::move(path)) {
  std::string old;
  {
    std::ifstream file(path_, std::ios::binary);
    old.assign(std::istreambuf_iterator<char>(file), {});
  }
  old.resize(kept_bytes(old, step));
  if (old.empty()) {
    std::string version = event_head(now(), 0);
    put_bytes(3, "brain.Event:2", version);
    old = framed(version);
  }
  write_file_atomically(path_, old);
  descriptor_ = open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (descriptor_ < 0) fail(path_.string(), std::strerror(errno));
}

EventFile::~EventFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

void EventFile::append(std::string_view record) {
  for (size_t done = 0; done < record.size();) {
    const ssize_t written = write(descriptor_, record.data() + done, record.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path_.string(), std::string("cannot be written: ") + std::strerror(errno));
    done += static_cast<size_t>(written);
  }
}

void EventFile::scalars(int64_t step, const std::vector<Scalar>& values) {
  append(event_record(now(), step, values));
}

void EventFile::sync() {
  if (fsync(descriptor_) != 0) fail(path_.string(), std::strerror(errno));
}

}  // namespace regard::io

#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Event files as TensorBoard reads them: records framed as in TFRecord files, each an Event message of
// protocol buffers (field numbers of tensorflow/core/util/event.proto and framework/summary.proto).
namespace regard::io {

// CRC-32C (Castagnoli; RFC 3720, appendix B.4), and as TFRecord files store it.
uint32_t crc32c(std::span<const std::byte> bytes);
uint32_t masked_crc32c(std::span<const std::byte> bytes);

struct Scalar {
  std::string tag;
  float value = 0;
};

// One record: scalars of a step. seconds: since 1970.
std::string event_record(double seconds, int64_t step, const std::vector<Scalar>& scalars);

// An event file that grows. One that is there goes on after its whole records of steps up to `step`; what
// follows (later steps, a record that was cut short) is taken away. Throws Error for the disk.
class EventFile {
 public:
  EventFile(std::filesystem::path path, int64_t step);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  void scalars(int64_t step, const std::vector<Scalar>& values);
  void sync();  // to the disk

 private:
  void append(std::string_view record);

  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace regard::io

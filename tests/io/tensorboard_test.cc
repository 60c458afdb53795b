// Event files: the sums of RFC 3720, the bytes of a record, and a file that goes on where a training does.
#include "regard/io/tensorboard.h"

#include <gtest/gtest.h>

#include <cstring>

#include "files.h"

namespace regard::io {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string unhex(const std::string& text) {
  std::string out;
  for (size_t i = 0; i + 1 < text.size(); i += 2)
    out += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  return out;
}

TEST(Crc32c, TheExamplesOfRfc3720) {
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\0'))), 0x8A9136AAU);
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\xff'))), 0x62A8AB43U);
  std::string rising;
  for (int i = 0; i < 32; ++i) rising += static_cast<char>(i);
  EXPECT_EQ(crc32c(bytes_of(rising)), 0x46DD794EU);
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283U);
  EXPECT_EQ(crc32c({}), 0U);
}

// Field by field: time 1.0, step 300, one value "loss" = 0.5.
TEST(EventRecord, HoldsTheMessageByFieldNumbers) {
  const std::string event = unhex(
      "09000000000000f03f"
      "10ac02"
      "2a0d"
      "0a0b"
      "0a046c6f7373"
      "150000003f");
  const std::string record = event_record(1.0, 300, {{"loss", 0.5F}});
  ASSERT_EQ(record.size(), 12 + event.size() + 4);
  EXPECT_EQ(record.substr(0, 8), unhex("1b00000000000000"));
  EXPECT_EQ(record.substr(12, event.size()), event);
  uint32_t sum = 0;
  std::memcpy(&sum, record.data() + 8, 4);
  EXPECT_EQ(sum, masked_crc32c(bytes_of(record.substr(0, 8))));
  std::memcpy(&sum, record.data() + 12 + event.size(), 4);
  EXPECT_EQ(sum, masked_crc32c(bytes_of(event)));
}

TEST(EventFile, GoesOnAfterTheStepThatIsKept) {
  TemporaryFolder folder;
  const auto path = folder / "events.out.tfevents.0.test";
  size_t at_two = 0;
  {
    EventFile file(path, 0);
    for (int64_t step = 1; step <= 4; ++step) {
      file.scalars(step, {{"loss", 1.0F}});
      if (step == 2) at_two = read_all(path).size();
    }
    file.sync();
  }
  const std::string whole = read_all(path);
  EXPECT_EQ(whole.substr(12, 9).front(), '\x09');
  EXPECT_NE(whole.find("brain.Event:2"), std::string::npos);
  { EventFile file(path, 2); }
  EXPECT_EQ(read_all(path), whole.substr(0, at_two));
  // A record that was cut short, and a file that is none.
  write_all(path, whole.substr(0, whole.size() - 1));
  { EventFile file(path, 100); }
  EXPECT_EQ(read_all(path).size(), whole.size() - (whole.size() - at_two) / 2);
  write_all(path, "something else");
  { EventFile file(path, 100); }
  EXPECT_EQ(read_all(path).size(), at_two - (whole.size() - at_two));
}

}  // namespace
}  // namespace regard::io

#include "model/report/tensorboard.h"

#include <array>
#include <bit>
#include <chrono>

#include "base/error.h"
#include "base/file/folder.h"

namespace lumen::model::report {
namespace {

namespace fs = std::filesystem;

// Fields of the messages that are written.
enum Field : uint32_t {
  kEventWallTime = 1,
  kEventStep = 2,
  kEventFileVersion = 3,
  kEventSummary = 5,
  kEventSessionLog = 7,
  kSessionStatus = 1,
  kSummaryValue = 1,
  kValueTag = 1,
  kValueSimple = 2,
  kValueTensor = 8,
  kValueMetadata = 9,
  kMetadataPlugin = 1,
  kPluginName = 1,
  kTensorType = 1,
  kTensorShape = 2,
  kTensorString = 8,
};
constexpr uint64_t kSessionStart = 1;
constexpr uint64_t kTypeString = 7;

template <typename T>
void append_fixed(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>((value >> (8 * i)) & 0xFF);
}

// A message in the wire format.
class Message {
 public:
  Message& varint(uint32_t field, uint64_t value) {
    key(field, 0);
    raw_varint(value);
    return *this;
  }
  Message& number(uint32_t field, double value) {
    key(field, 1);
    append_fixed(text_, std::bit_cast<uint64_t>(value));
    return *this;
  }
  Message& number(uint32_t field, float value) {
    key(field, 5);
    append_fixed(text_, std::bit_cast<uint32_t>(value));
    return *this;
  }
  Message& bytes(uint32_t field, std::string_view value) {
    key(field, 2);
    raw_varint(value.size());
    text_ += value;
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  void key(uint32_t field, uint32_t wire) { raw_varint((uint64_t{field} << 3) | wire); }
  void raw_varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_ += static_cast<char>((value & 0x7F) | 0x80);
    text_ += static_cast<char>(value);
  }

  std::string text_;
};

Message event(int64_t step) {
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  Message m;
  m.number(kEventWallTime, now);
  if (step != 0) m.varint(kEventStep, step);
  return m;
}

uint32_t masked(uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static const std::array<uint32_t, 256> kTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t crc = i;
      for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ 0x82F63B78U : crc >> 1;
      table[i] = crc;
    }
    return table;
  }();
  uint32_t crc = ~0U;
  for (const char c : bytes) crc = kTable[(crc ^ static_cast<uint8_t>(c)) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

std::string event_record(std::string_view event) {
  std::string out;
  append_fixed(out, static_cast<uint64_t>(event.size()));
  append_fixed(out, masked(crc32c(out)));
  out += event;
  append_fixed(out, masked(crc32c(event)));
  return out;
}

EventFile::EventFile(const fs::path& folder, int64_t step) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw user_error("cannot create '{}': {}", folder.string(), error.message());
  // Readers sort files by name.
  size_t files = 0;
  for (const fs::path& path : list_folder(folder, error))
    files += path.filename().string().find("tfevents") == std::string::npos ? 0 : 1;
  const auto now =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  path_ = folder / fmt::format("events.out.tfevents.{:010}.lumen.{:06}", now, files);
  file_.open(path_, std::ios::binary | std::ios::trunc);
  Message version = event(0);
  version.bytes(kEventFileVersion, "brain.Event:2");
  put(version.text());
  if (step > 0 || files > 0) go_back(step);
}

void EventFile::put(std::string_view event) {
  if (path_.empty()) return;
  file_ << event_record(event) << std::flush;
  if (!file_) throw user_error("cannot write {}: is the disk full?", path_.string());
}

void EventFile::scalars(int64_t step, std::span<const std::pair<std::string, double>> values) {
  Message summary;
  for (const auto& [tag, value] : values) {
    Message one;
    one.bytes(kValueTag, tag).number(kValueSimple, static_cast<float>(value));
    summary.bytes(kSummaryValue, one.text());
  }
  Message whole = event(step);
  put(whole.bytes(kEventSummary, summary.text()).text());
}

void EventFile::text(int64_t step, std::string_view tag, std::string_view text) {
  Message plugin, metadata, tensor, value, summary;
  plugin.bytes(kPluginName, "text");
  metadata.bytes(kMetadataPlugin, plugin.text());
  tensor.varint(kTensorType, kTypeString).bytes(kTensorShape, "").bytes(kTensorString, text);
  value.bytes(kValueTag, tag).bytes(kValueMetadata, metadata.text()).bytes(kValueTensor, tensor.text());
  summary.bytes(kSummaryValue, value.text());
  Message whole = event(step);
  put(whole.bytes(kEventSummary, summary.text()).text());
}

void EventFile::go_back(int64_t step) {
  Message session, whole = event(step);
  session.varint(kSessionStatus, kSessionStart);
  put(whole.bytes(kEventSessionLog, session.text()).text());
}

}  // namespace lumen::model::report

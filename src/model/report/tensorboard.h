// Event files for TensorBoard: records framed with lengths and masked CRC-32C, each an Event in the protocol buffer
// wire format (tensorflow/core/util/event.proto and framework/summary.proto), of which scalars and texts are supported.
// Proved by tests/model/report/report_tensorboard_test.cpp, and by tests/cli/tensorboard_reference.py against the
// tensorboard package.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lumen::model::report {

uint32_t crc32c(std::string_view bytes);
// One record: length, its checksum, the bytes, their checksum.
std::string event_record(std::string_view event);

class EventFile {
 public:
  EventFile() = default;
  // A new file in `folder`, named to sort after existing ones. Invalidates earlier files' values from `step` on.
  EventFile(const std::filesystem::path& folder, int64_t step);
  void scalars(int64_t step, std::span<const std::pair<std::string, double>> values);
  void text(int64_t step, std::string_view tag, std::string_view text);
  void go_back(int64_t step);  // invalidates values from `step` on

 private:
  void put(std::string_view event);

  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace lumen::model::report

// Offloaded device data: in a file, bypassing the page cache if the file system allows it, or in page-locked memory of
// this process. Callers transfer data in their own threads (serial_thread.h), so that the device computes meanwhile.
// Proved by tests/run/device/outside_test.cpp.
//
// May include: base, base/threads, run/device.
// Offers: serial_thread.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "run/device/device.h"

namespace lumen::run {

// Alignment of transfers, in a file and in memory.
constexpr int64_t kOutsideAlignment = 4096;

// Zero-initialized. One thread may bring while another takes; neither may be called concurrently with itself.
class Outside {
 public:
  virtual ~Outside() = default;
  virtual std::string describe() const = 0;                                  // a short description of the storage
  virtual void bring(int64_t at, std::byte* to, int64_t bytes) = 0;          // to the device's memory
  virtual void take(int64_t at, const std::byte* from, int64_t bytes) = 0;   // from the device's memory
  virtual void read(int64_t at, std::byte* to, int64_t bytes) = 0;           // to this process; not during a bring
  virtual void write(int64_t at, const std::byte* from, int64_t bytes) = 0;  // not during a take
};

// An unlinked file in `folder`, so that it is deleted when the process ends in any way. All of its space is allocated
// at once. Error (exit 1) that names the file and the bytes if there is no room, or if reading or writing fails later.
std::unique_ptr<Outside> outside_in_file(Device& device, const std::filesystem::path& folder, int64_t bytes);

// Page-locked memory. Null on devices whose memory is this process's anyway.
std::unique_ptr<Outside> outside_in_memory(Device& device, int64_t bytes);

// Rounds a size up to the alignment of an Outside.
int64_t outside_size(int64_t bytes);

}  // namespace lumen::run

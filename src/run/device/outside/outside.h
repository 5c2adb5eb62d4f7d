// Bytes that belong to a device's work and lie outside of its memory: in a file, past the page cache where the file
// system lets it, or in page-locked memory of this process. Who brings and takes them does so in threads of its own
// (serial_thread.h), so that the device computes meanwhile. Proved by tests/run/device/outside_test.cpp.
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

// What is brought and taken begins at multiples of this, in a file and in memory.
constexpr int64_t kOutsideAlignment = 4096;

// All zeros to begin with. One thread may bring while another one takes; neither is done by two at once.
class Outside {
 public:
  virtual ~Outside() = default;
  virtual std::string describe() const = 0;                                  // where, in a few words
  virtual void bring(int64_t at, std::byte* to, int64_t bytes) = 0;          // to the device's memory
  virtual void take(int64_t at, const std::byte* from, int64_t bytes) = 0;   // from there
  virtual void read(int64_t at, std::byte* to, int64_t bytes) = 0;           // to this process; not during a bring
  virtual void write(int64_t at, const std::byte* from, int64_t bytes) = 0;  // not during a take
};

// A file in `folder` that no name is left of, so that it goes when the process goes, however it ends. All of its room
// is taken at once. Error (exit 1) that names the file and the bytes when there is no room, and when reading or writing
// fails later.
std::unique_ptr<Outside> outside_in_file(Device& device, const std::filesystem::path& folder, int64_t bytes);

// Page-locked memory. Null on devices whose memory is this process's anyway.
std::unique_ptr<Outside> outside_in_memory(Device& device, int64_t bytes);

// Sizes as the records of an Outside take them.
int64_t outside_size(int64_t bytes);

}  // namespace lumen::run

// The memory available to this process, limited by the machine, control groups and the process's own limits. Must not
// depend on: devices. Proved by tests/run/device/available_test.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace lumen::run {

struct HostRoom {
  int64_t total = 0;      // bytes of the machine, or a lower limit
  int64_t available = 0;  // bytes that can still be allocated
  std::string limit;      // the limit that determines `available`, for messages; empty: the machine itself
};

// `root`: the root of the system's files; tests use another folder, and then process limits are not applied. The
// environment variable LUMEN_MEMORY ("8G", "512M", "1000000") limits this process's memory.
HostRoom host_room(const std::filesystem::path& root = "/");

// "8G" in bytes; usage Error for an invalid amount. `what` names it in the message.
int64_t parse_amount(const std::string& text, const std::string& what);

// Bytes of this process, excluding file-backed pages.
int64_t own_memory();

}  // namespace lumen::run

// What the machine's memory, the control groups around this process and its own limits leave to it. Must not know:
// devices. Proved by tests/run/device/available_test.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace lumen::run {

struct HostRoom {
  int64_t total = 0;      // bytes of the machine, or what limits allow where that is less
  int64_t available = 0;  // bytes that may still be taken
  std::string limit;      // what makes `available` as small as it is, for messages; empty: the machine itself
};

// `root` is where the system's own files lie: another folder in tests, whose process has no limits then. The
// environment variable LUMEN_MEMORY ("8G", "512M", "1000000") says that this process shall take no more than so much.
HostRoom host_room(const std::filesystem::path& root = "/");

// "8G" in bytes; usage Error when it is no amount. `what` names it in the message.
int64_t parse_amount(const std::string& text, const std::string& what);

// Bytes of this process that are no pages of files.
int64_t own_memory();

}  // namespace lumen::run

// The servers of this user that run now, for `lumen ps`: `lumen serve` writes a small file for its lifetime into
// $XDG_RUNTIME_DIR/lumen, or into lumen-UID of the folder of temporary files, which only the user can use. Proved by
// tests/cli/servers/servers_test.cpp.
//
// May include: base, base/fetch, base/file, base/structured, cli, cli/settings.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lumen::cli {

struct ServerState {
  int64_t process = 0;  // 0 when written: this one
  int64_t started = 0;  // of the process, in clock ticks since the system's start, as /proc has it
  std::string host;
  int port = 0;
  bool has_tls = false;
  std::vector<std::string> models;  // the names that they are served under
};

std::filesystem::path servers_folder();

// The file of a server as long as the object lives. A failure to write it is a warning.
class ServerRecord {
 public:
  explicit ServerRecord(ServerState state);
  ServerRecord(const ServerRecord&) = delete;
  ServerRecord& operator=(const ServerRecord&) = delete;
  ~ServerRecord();

 private:
  std::filesystem::path file_;
};

// All servers that run, by port. Files of processes that have ended, and files that are malformed, are removed.
std::vector<ServerState> running_servers();

// Bytes of resident memory; 0 where unknown.
uint64_t memory_of_process(int64_t process);
// The time since the process started, in seconds; 0 where unknown.
double age_of_process(const ServerState& state);

}  // namespace lumen::cli

// A full mesh of TCP connections between ranks: listeners, authentication, and time limits. Malformed bytes end the
// connection, not the run.
#pragma once

#include <vector>

#include "run/ranks/tcp.h"

namespace lumen::run {

// A file descriptor, closed by the destructor.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  ~Socket();
  Socket(Socket&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Socket& operator=(Socket&& other) noexcept;
  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_;
};

// Indexed by rank; the rank's own entry is closed. The sockets are non-blocking.
std::vector<Socket> connect_ranks(const TcpPlace& place, int rank, int size);

}  // namespace lumen::run

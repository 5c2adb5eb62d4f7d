// TCP connections between ranks until each has one with each: who listens where, who proves what, how long anybody
// waits. Bytes that do not follow the form end the connection, not the run.
#pragma once

#include <vector>

#include "run/ranks/tcp.h"

namespace lumen::run {

// A file descriptor that is closed with it.
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

// By rank; nothing at the rank itself. They do not block.
std::vector<Socket> connect_ranks(const TcpPlace& place, int rank, int size);

}  // namespace lumen::run

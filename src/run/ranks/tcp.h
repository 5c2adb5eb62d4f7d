// Ranks on several hosts, fully connected by TCP. Rank 0 listens at a known address and sends all ranks the addresses
// of the others. Both ends of every connection authenticate with a keyed seal of the token; the data sent afterwards
// are not encrypted. Proved by tests/run/ranks/tcp_test.cpp.
#pragma once

#include <memory>
#include <string>

#include "run/ranks/transport.h"

namespace lumen::run {

struct TcpPlace {
  std::string host;
  int port = 0;
  std::string token;
  double patience = 300;  // seconds until all ranks have joined
};

// Error if not all join in time, or one is not part of the run.
std::unique_ptr<Transport> join_tcp(const TcpPlace& place, int rank, int size);

}  // namespace lumen::run

// Ranks on several hosts, each connected to each by TCP. Rank 0 listens at a place that all know and tells everybody
// where the others listen. Both ends of every connection prove with a keyed seal that they know the token; what is sent
// afterwards is not encrypted. Proved by tests/run/ranks/tcp_test.cpp.
#pragma once

#include <memory>
#include <string>

#include "run/ranks/transport.h"

namespace lumen::run {

struct TcpPlace {
  std::string host;
  int port = 0;
  std::string token;
  double patience = 300;  // seconds until all have come
};

// Error when not all come in time, or one of them is none of ours.
std::unique_ptr<Transport> join_tcp(const TcpPlace& place, int rank, int size);

}  // namespace lumen::run

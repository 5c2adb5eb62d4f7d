// Any bytes as what a stranger sends to the place where ranks meet: it is left alone, and the ranks that are waited for
// are missing in time.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "base/check.h"
#include "base/error.h"
#include "run/ranks/connections.h"
#include "tests/fuzz/mutators/binary.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen;
  // A port of this process's own: several run at a time.
  static const int port = [] {
    const int s = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in6 where{};
    where.sin6_family = AF_INET6;
    socklen_t length = sizeof where;
    LUMEN_CHECK(bind(s, reinterpret_cast<sockaddr*>(&where), length) == 0 &&
                getsockname(s, reinterpret_cast<sockaddr*>(&where), &length) == 0);
    close(s);
    return ntohs(where.sin6_port);
  }();
  std::thread stranger([&] {
    for (int tries = 0; tries < 200; ++tries) {
      const int s = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_in6 where{};
      where.sin6_family = AF_INET6;
      where.sin6_addr = in6addr_loopback;
      where.sin6_port = htons(static_cast<uint16_t>(port));
      const bool is_there = connect(s, reinterpret_cast<sockaddr*>(&where), sizeof where) == 0;
      if (is_there) (void)!send(s, data, size, MSG_NOSIGNAL);
      close(s);
      if (is_there) return;
      usleep(20);
    }
  });
  try {
    run::connect_ranks({.host = "::1", .port = port, .token = "t", .patience = 0.003}, 0, 2);
  } catch (const Error&) {
  }
  stranger.join();
  return 0;
}

FUZZ_MUTATOR(mutators::change_binary, 0)

// Needs: cpu. Who is let in by TCP: ranks that know the token, nobody else; bytes of strangers end nothing but their
// own connection, and bytes of a rank that follow no form end the run with a clear error.
#include "run/ranks/tcp.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "run/ranks/connections.h"
#include "tests/run/ranks/among.h"

namespace lumen::run {
namespace {

// Connected to a port of this host, or -1.
int call_port(int port) {
  const int s = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(port);
  for (int i = 0; i < 100; ++i) {
    if (::connect(s, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0) return s;
    ::usleep(20'000);
  }
  ::close(s);
  return -1;
}

TEST(Tcp, StrangersAreNotLetIn) {
  constexpr int kPort = 31601;
  std::thread strangers([] {
    std::mt19937 random(7);
    for (const size_t bytes : {0, 3, 31, 32, 64, 4096}) {
      const int s = call_port(kPort);
      if (s < 0) return;
      std::string noise(bytes, 0);
      for (char& c : noise) c = static_cast<char>(random());
      if (bytes == 64) std::memcpy(noise.data(), "LUMENrk1\1\0\0\0\2\0\0\0", 16);  // the form without the token
      (void)::send(s, noise.data(), noise.size(), MSG_NOSIGNAL);
      ::shutdown(s, SHUT_WR);
      ::close(s);
    }
  });
  const auto errors = among(
      2,
      [](int r) {
        if (r == 1) ::usleep(300'000);
        return join_tcp({"127.0.0.1", kPort, "token", 20}, r, 2);
      },
      [](Communicator& own) { own.barrier(); });
  strangers.join();
  EXPECT_EQ(errors, kNoErrors2);
}

// Whoever says nothing, or half of something, holds up nobody.
TEST(Tcp, SilentStrangersHoldUpNobody) {
  constexpr int kPort = 31604, kStrangers = 60;
  std::vector<int> held;
  std::thread strangers([&] {
    for (int i = 0; i < kStrangers; ++i) {
      held.push_back(call_port(kPort));
      if (i % 2 == 0) (void)::send(held.back(), "LUMENrk1", 8, MSG_NOSIGNAL);
    }
  });
  const auto errors = among(
      3,
      [&](int r) {
        if (r == 1) strangers.join();
        if (r > 0) ::usleep(100'000);
        return join_tcp({"127.0.0.1", kPort, "token", 8}, r, 3);  // seconds; each stranger may take ten
      },
      [](Communicator& own) { own.barrier(); });
  for (const int s : held) ::close(s);
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// More of them than are listened to at once: ranks that are turned away come again.
TEST(Tcp, AFloodOfStrangersEnds) {
  constexpr int kPort = 31605;
  std::atomic<bool> ends{false};
  std::vector<int> held;
  std::thread strangers([&] {
    while (!ends && held.size() < 700) held.push_back(call_port(kPort));
  });
  const auto errors = among(
      2,
      [&](int r) {
        if (r == 1) ::usleep(100'000);
        return join_tcp({"127.0.0.1", kPort, "token", 20}, r, 2);
      },
      [](Communicator& own) { own.barrier(); });
  ends = true;
  strangers.join();
  for (const int s : held)
    if (s >= 0) ::close(s);
  EXPECT_EQ(errors, kNoErrors2);
}

TEST(Tcp, AnotherTokenIsNotLetIn) {
  const auto errors = among(
      2, [](int r) { return join_tcp({"127.0.0.1", 31602, r == 0 ? "one" : "another", 2}, r, 2); },
      [](Communicator& own) { own.barrier(); });
  EXPECT_NE(errors[0].find("without hearing of rank 1"), std::string::npos) << errors[0];
  EXPECT_NE(errors[1].find("without hearing of rank 0"), std::string::npos) << errors[1];
}

TEST(Tcp, APortThatIsTakenIsNamed) {
  const auto errors = among(
      2, [](int r) { return join_tcp({"127.0.0.1", 31603, "t", 5}, r, 2); },
      [](Communicator& own) {
        own.barrier();
        if (own.rank() == 0) {
          std::string said;
          try {
            (void)join_tcp({"127.0.0.1", 31603, "t", 1}, 0, 2);
          } catch (const Error& error) {
            said = error.what();
          }
          // A listener is closed when all have come: the port is free again, and nobody calls.
          EXPECT_NE(said.find("31603"), std::string::npos) << said;
        }
        own.barrier();
      });
  EXPECT_EQ(errors, kNoErrors2);
}

// One end follows the greeting and then sends what it likes.
TEST(Tcp, BytesThatFollowNoFormAreAnError) {
  std::mt19937 random(3);
  for (int i = 0; i < 12; ++i) {
    std::string noise(i < 2 ? 10 * i : 24 + i * 100, 0);
    for (char& c : noise) c = static_cast<char>(random());
    std::string error;
    std::thread honest([&] {
      try {
        const auto transport = join_tcp({"127.0.0.1", 31610 + i, "t", 10}, 0, 2);
        std::vector<std::byte> in(64);
        transport->exchange({{}, {}}, {{}, {{in.data(), 64}}});
      } catch (const std::exception& e) {
        error = e.what();
      }
    });
    {
      const std::vector<Socket> sockets = connect_ranks({"127.0.0.1", 31610 + i, "t", 10}, 1, 2);
      (void)::send(sockets[0].fd(), noise.data(), noise.size(), MSG_NOSIGNAL);
      ::usleep(20'000);
    }
    honest.join();
    EXPECT_NE(error.find("rank 1 is gone"), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace lumen::run

// needs: none. Messages of devices and clouds: their bytes, what is refused, and both ends over a real socket.
#include "apps/recommend/wire.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "base/error.h"

namespace lumen::recommend {
namespace {

using namespace std::chrono_literals;

TEST(Messages, GoThereAndBackInAnyPieces) {
  const std::string bytes = packed({MessageKind::ask, pack_ask({7, {1, 2, 3}})});
  EXPECT_EQ(bytes.size(), kMessageHead + 10 + 12);
  std::string some;
  for (size_t i = 0; i + 1 < bytes.size(); ++i) {
    some += bytes[i];
    EXPECT_FALSE(take_message(some, 1000));
  }
  some += bytes.back();
  some += "LPLN";
  const auto message = take_message(some, 1000);
  ASSERT_TRUE(message);
  EXPECT_EQ(some, "LPLN");
  const Ask ask = unpack_ask(message->content);
  EXPECT_EQ(ask.backbone, 7);
  EXPECT_EQ(ask.recent, (std::vector<ItemId>{1, 2, 3}));
}

TEST(Messages, AreRefusedAsSoonAsTheyAreWrong) {
  const std::string good = packed({MessageKind::plan, "abc"});
  for (const size_t at : {0, 4, 6, 8, 12, 20}) {
    std::string bad = good;
    bad[at] ^= 0x10;
    EXPECT_THROW(take_message(bad, 3), Error) << at;
  }
  std::string four = "GET ";
  EXPECT_THROW(take_message(four, 3), Error);
  std::string large = packed({MessageKind::plan, std::string(100, 'x')}).substr(0, kMessageHead);
  EXPECT_THROW(take_message(large, 99), Error);  // before its content has come
  EXPECT_THROW(unpack_ask("short"), Error);
  std::string zero = pack_ask({7, {1}});
  zero[10] = 0;
  EXPECT_THROW(unpack_ask(zero), Error);
}

TEST(Addresses, AreReadAndRefused) {
  EXPECT_EQ(parse_address("7070").host, "127.0.0.1");
  EXPECT_EQ(parse_address("[::1]:5").host, "::1");
  EXPECT_EQ(parse_address("a.b:65535").port, 65535);
  for (const char* wrong : {"", ":", "a:", ":1", "a:65536", "a:-1", "a:1x"})
    EXPECT_THROW(parse_address(wrong), Error) << wrong;
}

// A cloud in a thread, which says yes to items below 100.
class Cloud {
 public:
  explicit Cloud(CloudLimits limits = {}) {
    std::promise<int> port;
    auto listening = port.get_future();
    thread_ = std::thread([&, limits] {
      counts_ = serve_plans(
          {"127.0.0.1", 0}, limits,
          [](const Ask& ask) {
            if (!ask.recent.empty() && ask.recent[0] >= 100) throw user_error("no such item");
            return Plan{{4}, {0, 1, 2, 3}};
          },
          [&](int p) { port.set_value(p); }, stop_);
    });
    address_ = {"127.0.0.1", listening.get()};
  }
  ~Cloud() { end(); }
  CloudCounts end() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return counts_;
  }
  const Address& address() const { return address_; }

 private:
  std::atomic<bool> stop_ = false;
  CloudCounts counts_;
  Address address_;
  std::thread thread_;
};

// Somebody who sends bytes, and what comes back until the other end closes.
std::string said_back(const Address& address, const std::string& bytes, bool ends = true) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(address.port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  EXPECT_EQ(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
  if (ends) ::shutdown(fd, SHUT_WR);
  std::string out;
  char some[1000];
  for (ssize_t n; (n = ::recv(fd, some, sizeof some, 0)) > 0;) out.append(some, n);
  ::close(fd);
  return out;
}

TEST(Clouds, AnswerDevices) {
  Cloud cloud;
  for (int i = 0; i < 3; ++i) {
    const Received got = ask_for_plan(cloud.address(), {1, {5, 6, 7}}, 10);
    EXPECT_EQ(got.plan, (Plan{{4}, {0, 1, 2, 3}}));
    EXPECT_EQ(got.bytes_out, 20 + 10 + 12);
    EXPECT_EQ(got.bytes_in, 20 + 7);
  }
  EXPECT_THROW(ask_for_plan(cloud.address(), {1, {100}}, 10), PeerRefused);
  EXPECT_EQ(ask_for_plan(cloud.address(), {1, {5}}, 10).plan.classes.size(), 4);
  const CloudCounts counts = cloud.end();
  EXPECT_EQ(counts.answered, 4);
  EXPECT_EQ(counts.refused, 1);
}

TEST(Clouds, TellStrangersAndLetThemGo) {
  Cloud cloud;
  std::string back = said_back(cloud.address(), "GET / HTTP/1.1\r\n\r\n", false);
  const auto no = take_message(back, kMostContent);
  ASSERT_TRUE(no);
  EXPECT_EQ(no->kind, MessageKind::no);
  EXPECT_NE(no->content.find("a malformed message"), std::string::npos);
  std::string large = packed({MessageKind::ask, std::string(6000, 'x')});
  back = said_back(cloud.address(), large.substr(0, 200), false);
  EXPECT_NE(back.find("are the most"), std::string::npos);
  EXPECT_EQ(ask_for_plan(cloud.address(), {1, {5}}, 10).plan.classes.size(), 4);
}

TEST(Clouds, DoNotWaitForTheSilentNorServeTheGreedy) {
  Cloud cloud({.connections = 4, .seconds = 0.3, .rate = 5, .asks = 0});
  EXPECT_EQ(said_back(cloud.address(), "LP", false), "");  // ended by the cloud
  std::string many;
  for (int i = 0; i < 50; ++i) many += packed({MessageKind::ask, pack_ask({1, {5}})});
  const std::string back = said_back(cloud.address(), many, false);
  EXPECT_NE(back.find("requests per second"), std::string::npos);
  EXPECT_LT(back.size(), 20 * 27);
  EXPECT_EQ(ask_for_plan(cloud.address(), {1, {5}}, 10).plan.classes.size(), 4);
}

TEST(Devices, AreToldThatACloudIsGone) {
  Address address;
  {
    Cloud cloud;
    address = cloud.address();
  }
  try {
    ask_for_plan(address, {1, {5}}, 2);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("no cloud at"), std::string::npos) << e.what();
    EXPECT_NE(e.hint().find("stays good"), std::string::npos);
  }
}

}  // namespace
}  // namespace lumen::recommend

#include "model/recommend/wire.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <list>

#include "base/error.h"
#include "base/hash.h"
#include "base/printable.h"

namespace lumen::model {
namespace {

using Clock = std::chrono::steady_clock;
constexpr uint32_t kMagic = 0x4e4c504c;
constexpr uint16_t kVersion = 1;
constexpr int kTick = 100;  // milliseconds between looks at `stop`
constexpr size_t kReadAtOnce = 4096;

double seconds_since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

template <class T>
void put(std::string& out, T value) {
  for (size_t i = 0; i < sizeof value; ++i) out.push_back(value >> 8 * i & 0xff);
}
template <class T>
T get(std::string_view bytes, size_t at) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= uint64_t{uint8_t(bytes[at + i])} << 8 * i;
  return value;
}

class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  void set_up() const {
    ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) | O_NONBLOCK);
    ::fcntl(fd_, F_SETFD, FD_CLOEXEC);
    const int yes = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  }

 private:
  int fd_;
};

bool would_block() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

Error broken(const std::string& what) {
  return user_error("bytes that are no message: {}", what);
}

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;
Addresses look_up(const Address& address, bool listens) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = listens ? AI_PASSIVE : 0;
  addrinfo* found = nullptr;
  if (const int code = ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
      code != 0)
    throw user_error("{}: {}", address.host, ::gai_strerror(code));
  return {found, ::freeaddrinfo};
}

int port_of(const Socket& s) {
  sockaddr_storage where{};
  socklen_t length = sizeof where;
  if (::getsockname(s.fd(), reinterpret_cast<sockaddr*>(&where), &length) != 0) return 0;
  return ntohs(where.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(where).sin6_port
                                           : reinterpret_cast<sockaddr_in&>(where).sin_port);
}

Socket listen_at(const Address& address) {
  const Addresses found = look_up(address, true);
  std::string why = "no address";
  for (const addrinfo* a = found.get(); a; a = a->ai_next) {
    Socket s(::socket(a->ai_family, a->ai_socktype, a->ai_protocol));
    const int yes = 1;
    ::setsockopt(s.fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (s.is_open() && ::bind(s.fd(), a->ai_addr, a->ai_addrlen) == 0 && ::listen(s.fd(), 128) == 0) {
      s.set_up();
      return s;
    }
    why = std::strerror(errno);
  }
  throw Error(Exit::user, fmt::format("cannot listen at {}:{}: {}", address.host, address.port, why),
              "another --listen, or port 0 for one that is free");
}

// A device that is talking.
class Visitor {
 public:
  explicit Visitor(Socket s) : socket_(std::move(s)) {}

  const Socket& socket() const { return socket_; }
  short waits_for() const { return out_.empty() ? POLLIN : POLLOUT; }
  // What it says is not read before it has taken what it was told: so nothing piles up.
  bool is_over(const CloudLimits& limits) const {
    return (is_ending_ && out_.empty()) || is_gone_ || seconds_since(heard_) > limits.seconds;
  }

  void move(const CloudLimits& limits, const std::function<Plan(const Ask&)>& answer, CloudCounts& counts) {
    if (!out_.empty()) return send(counts);
    char some[kReadAtOnce];
    const ssize_t n = ::recv(socket_.fd(), some, sizeof some, 0);
    if (n <= 0) {
      is_gone_ = n == 0 || !would_block();
      return;
    }
    counts.bytes_in += n;
    in_.append(some, n);
    try {
      while (!is_ending_)
        if (const auto message = take_message(in_, 10 + 4 * kMostAsked))
          out_ += packed({MessageKind::plan, pack_plan(answered(*message, limits, answer, counts))});
        else
          break;
    } catch (const Error& error) {
      ++counts.refused;
      out_ += packed({MessageKind::no, std::string(error.what()).substr(0, kMostReason)});
      is_ending_ = true;
    }
    if (!out_.empty()) send(counts);
  }

 private:
  Plan answered(const Message& message, const CloudLimits& limits, const std::function<Plan(const Ask&)>& answer,
                CloudCounts& counts) {
    if (message.kind != MessageKind::ask) throw broken("devices only ask");
    if (++asks_ > limits.rate * (1 + seconds_since(came_))) throw user_error("more than {} asks a second", limits.rate);
    if (limits.asks > 0 && counts.answered >= limits.asks) throw user_error("the cloud has ended");
    Plan plan = answer(unpack_ask(message.content));
    ++counts.answered;
    heard_ = Clock::now();
    return plan;
  }

  void send(CloudCounts& counts) {
    const ssize_t n = ::send(socket_.fd(), out_.data(), out_.size(), MSG_NOSIGNAL);
    if (n < 0) {
      is_gone_ = !would_block();
      return;
    }
    counts.bytes_out += n;
    out_.erase(0, n);
  }

  Socket socket_;
  std::string in_, out_;
  Clock::time_point came_ = Clock::now(), heard_ = came_;
  double asks_ = 0;
  bool is_ending_ = false, is_gone_ = false;
};

Socket connect_to(const Address& address, Clock::time_point began, double patience) {
  const Addresses found = look_up(address, false);
  std::string why = "no address";
  for (const addrinfo* a = found.get(); a; a = a->ai_next) {
    Socket s(::socket(a->ai_family, a->ai_socktype, a->ai_protocol));
    if (!s.is_open()) continue;
    s.set_up();
    if (::connect(s.fd(), a->ai_addr, a->ai_addrlen) == 0) return s;
    if (errno == EINPROGRESS) {
      pollfd p{s.fd(), POLLOUT, 0};
      const double left = patience - seconds_since(began);
      int failure = ETIMEDOUT;
      socklen_t length = sizeof failure;
      if (::poll(&p, 1, std::lround(std::max(0.0, left) * 1e3)) > 0)
        ::getsockopt(s.fd(), SOL_SOCKET, SO_ERROR, &failure, &length);
      if (failure == 0) return s;
      errno = failure;
    }
    why = std::strerror(errno);
  }
  throw Error(Exit::user, fmt::format("no cloud at {}:{}: {}", address.host, address.port, why),
              "`lumen recommend serve` is one; the plan a device has stays good");
}

}  // namespace

std::string packed(const Message& message) {
  std::string out;
  put(out, kMagic);
  put(out, kVersion);
  put(out, uint16_t(message.kind));
  put(out, uint32_t(message.content.size()));
  put(out, hash_text(message.content).low);
  return out + message.content;
}

std::optional<Message> take_message(std::string& bytes, size_t most) {
  // What is wrong is said as soon as it can be seen.
  if (bytes.size() >= 4 && get<uint32_t>(bytes, 0) != kMagic) throw broken("it does not begin as one");
  if (bytes.size() < kMessageHead) return std::nullopt;
  if (const auto version = get<uint16_t>(bytes, 4); version != kVersion)
    throw broken(fmt::format("version {}, and {} is known", version, kVersion));
  const auto kind = get<uint16_t>(bytes, 6);
  if (kind < 1 || kind > 3) throw broken(fmt::format("kind {}", kind));
  const auto size = get<uint32_t>(bytes, 8);
  if (size > most) throw broken(fmt::format("{} bytes, and {} are the most", size, most));
  if (bytes.size() - kMessageHead < size) return std::nullopt;
  Message out{MessageKind(kind), bytes.substr(kMessageHead, size)};
  if (hash_text(out.content).low != get<uint64_t>(bytes, 12)) throw broken("its hash is another");
  bytes.erase(0, kMessageHead + size);
  return out;
}

std::string pack_ask(const Ask& ask) {
  std::string out;
  const size_t n = std::min(ask.recent.size(), kMostAsked);
  put(out, ask.backbone);
  put(out, uint16_t(n));
  for (size_t i = ask.recent.size() - n; i < ask.recent.size(); ++i) put(out, uint32_t(ask.recent[i]));
  return out;
}

Ask unpack_ask(std::string_view content) {
  if (content.size() < 10) throw broken("an ask of less than 10 bytes");
  Ask out{get<uint64_t>(content, 0), {}};
  const size_t n = get<uint16_t>(content, 8);
  if (n > kMostAsked || content.size() != 10 + 4 * n)
    throw broken(fmt::format("{} bytes for {} items", content.size(), n));
  for (size_t i = 0; i < n; ++i) {
    const auto item = get<uint32_t>(content, 10 + 4 * i);
    if (item == 0 || item > 0x7fffffff) throw broken(fmt::format("item {}", item));
    out.recent.push_back(item);
  }
  return out;
}

Address parse_address(const std::string& text) {
  Address out;
  const size_t colon = text.rfind(':');
  std::string port = text;
  if (colon != std::string::npos) {
    out.host = text.substr(0, colon);
    port = text.substr(colon + 1);
    if (out.host.starts_with('[') && out.host.ends_with(']')) out.host = out.host.substr(1, out.host.size() - 2);
  }
  const auto [end, code] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  if (code != std::errc() || end != port.data() + port.size() || out.port < 0 || out.port > 65535 || out.host.empty())
    throw Error(Exit::usage, fmt::format("'{}' is no address", text), "HOST:PORT, or PORT of this host");
  return out;
}

CloudCounts serve_plans(const Address& address, const CloudLimits& limits,
                        const std::function<Plan(const Ask&)>& answer, const std::function<void(int)>& listening,
                        const std::atomic<bool>& stop) {
  const Socket door = listen_at(address);
  listening(port_of(door));
  CloudCounts counts;
  std::list<Visitor> visitors;
  while (!stop) {
    if (limits.asks > 0 && counts.answered >= limits.asks && visitors.empty()) break;
    std::vector<pollfd> polled;
    for (const Visitor& v : visitors) polled.push_back({v.socket().fd(), v.waits_for(), 0});
    const bool has_room = std::ssize(visitors) < limits.connections;
    if (has_room) polled.push_back({door.fd(), POLLIN, 0});
    if (::poll(polled.data(), polled.size(), kTick) < 0 && errno != EINTR)
      throw user_error("cannot wait for devices: {}", std::strerror(errno));
    size_t i = 0;
    for (Visitor& v : visitors)
      if (polled[i++].revents != 0) v.move(limits, answer, counts);
    visitors.remove_if([&](const Visitor& v) { return v.is_over(limits); });
    if (!has_room || polled.back().revents == 0) continue;
    Socket s(::accept(door.fd(), nullptr, nullptr));
    if (!s.is_open()) continue;
    s.set_up();
    ++counts.connections;
    visitors.emplace_back(std::move(s));
  }
  return counts;
}

Received ask_for_plan(const Address& address, const Ask& ask, double patience) {
  const auto began = Clock::now();
  const Socket s = connect_to(address, began, patience);
  Received out;
  std::string to = packed({MessageKind::ask, pack_ask(ask)}), from;
  while (true) {
    const double left = patience - seconds_since(began);
    pollfd p{s.fd(), short(to.empty() ? POLLIN : POLLOUT), 0};
    if (left <= 0 || ::poll(&p, 1, std::lround(std::max(0.001, left) * 1e3)) == 0)
      throw Error(Exit::user, fmt::format("the cloud has not answered within {} seconds", patience),
                  "the plan a device has stays good");
    if (!to.empty()) {
      const ssize_t n = ::send(s.fd(), to.data(), to.size(), MSG_NOSIGNAL);
      if (n < 0 && !would_block()) throw user_error("the cloud went away: {}", std::strerror(errno));
      to.erase(0, std::max<ssize_t>(0, n));
      out.bytes_out += std::max<ssize_t>(0, n);
      continue;
    }
    char some[kReadAtOnce];
    const ssize_t n = ::recv(s.fd(), some, sizeof some, 0);
    if (n < 0 && would_block()) continue;
    if (n <= 0)
      throw Error(Exit::user, "the cloud went away before it had answered",
                  "ask again; the plan a device has stays good");
    out.bytes_in += n;
    from.append(some, n);
    const auto message = take_message(from, kMostContent);
    if (!message) continue;
    if (message->kind == MessageKind::no)
      throw user_error("the cloud says no: {}", printable(message->content.substr(0, kMostReason)));
    if (message->kind != MessageKind::plan) throw broken("the cloud only plans");
    out.plan = unpack_plan(message->content, "what the cloud sent");
    out.seconds = seconds_since(began);
    return out;
  }
}

}  // namespace lumen::model

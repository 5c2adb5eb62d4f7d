#include "base/net/net.h"

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
#include <cmath>
#include <cstring>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/printable.h"
#include "base/stopwatch.h"

namespace lumen {
namespace {

constexpr int kTick = 100;      // milliseconds between checks of `stop`
constexpr int kBacklog = 1024;  // connections waiting for accept()
constexpr size_t kReadAtOnce = 1 << 16;

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

// Outgoing bytes: sent bytes stay in place until the buffer is cleared.
class Outgoing {
 public:
  bool empty() const { return at_ == bytes_.size(); }
  void add(const std::string& more) {
    if (empty()) {
      bytes_.clear();
      at_ = 0;
    }
    bytes_ += more;
  }
  // The number of bytes sent; -1 when the peer has closed.
  ssize_t send(const Socket& s) {
    const ssize_t n = ::send(s.fd(), bytes_.data() + at_, bytes_.size() - at_, MSG_NOSIGNAL);
    if (n < 0) return would_block() ? 0 : -1;
    at_ += n;
    return n;
  }

 private:
  std::string bytes_;
  size_t at_ = 0;
};

// One client connection.
class Visitor {
 public:
  explicit Visitor(Socket s) : socket_(std::move(s)) {}

  const Socket& socket() const { return socket_; }
  short waits_for() const { return out_.empty() ? POLLIN : POLLOUT; }
  // A request is read only after the previous reply was sent (waits_for), so buffers do not grow.
  bool is_over(const ServeLimits& limits) const {
    return (is_ending_ && out_.empty()) || is_gone_ || heard_.seconds() > limits.seconds;
  }

  void move(const ServeLimits& limits, const Server& server, ServeCounts& counts) {
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
        if (const auto frame = take_frame(server.protocol, in_, limits.most))
          out_.add(packed_frame(server.protocol, answered(*frame, limits, server, counts)));
        else
          break;
    } catch (const Error& error) {
      ++counts.refused;
      out_.add(packed_frame(server.protocol, {server.protocol.no, std::string(error.what()).substr(0, kMostReason)}));
      is_ending_ = true;
    }
    if (!out_.empty()) send(counts);
  }

 private:
  Frame answered(const Frame& frame, const ServeLimits& limits, const Server& server, ServeCounts& counts) {
    if (++asks_ > limits.rate * (1 + came_.seconds()))
      throw user_error("more than {} requests per second", limits.rate);
    if (limits.answers > 0 && counts.answered >= limits.answers) throw user_error("nothing more is answered");
    Frame out = server.answer(frame);
    ++counts.answered;
    heard_.restart();
    return out;
  }

  void send(ServeCounts& counts) {
    const ssize_t n = out_.send(socket_);
    is_gone_ = n < 0;
    counts.bytes_out += std::max<ssize_t>(0, n);
  }

  Socket socket_;
  std::string in_;
  Outgoing out_;
  Stopwatch came_, heard_;
  double asks_ = 0;
  bool is_ending_ = false, is_gone_ = false;
};

Socket connect_to(const Address& address, const Stopwatch& watch, double patience, const Peer& peer) {
  const Addresses found = look_up(address, false);
  std::string why = "no address";
  for (const addrinfo* a = found.get(); a; a = a->ai_next) {
    Socket s(::socket(a->ai_family, a->ai_socktype, a->ai_protocol));
    if (!s.is_open()) continue;
    s.set_up();
    if (::connect(s.fd(), a->ai_addr, a->ai_addrlen) == 0) return s;
    if (errno == EINPROGRESS) {
      pollfd p{s.fd(), POLLOUT, 0};
      const double left = patience - watch.seconds();
      int failure = ETIMEDOUT;
      socklen_t length = sizeof failure;
      if (::poll(&p, 1, std::lround(std::max(0.0, left) * 1e3)) > 0)
        ::getsockopt(s.fd(), SOL_SOCKET, SO_ERROR, &failure, &length);
      if (failure == 0) return s;
      errno = failure;
    }
    why = std::strerror(errno);
  }
  throw Error(Exit::user, fmt::format("no {} at {}:{}: {}", peer.name, address.host, address.port, why), peer.hint);
}

}  // namespace

PeerRefused no_message(const std::string& what) {
  return {Exit::user, fmt::format("a malformed message: {}", what)};
}

std::string packed_frame(const Protocol& protocol, const Frame& frame) {
  std::string out;
  out.reserve(kFrameHead + frame.content.size());
  put_number(out, protocol.magic);
  put_number(out, protocol.version);
  put_number(out, frame.kind);
  put_number(out, uint32_t(frame.content.size()));
  put_number(out, hash_text(frame.content).low);
  return out + frame.content;
}

std::optional<Frame> take_frame(const Protocol& protocol, std::string& bytes, size_t most) {
  std::string magic;
  put_number(magic, protocol.magic);
  if (bytes.compare(0, std::min(bytes.size(), magic.size()), magic, 0, std::min(bytes.size(), magic.size())) != 0)
    throw no_message("it does not begin as one");
  if (bytes.size() < kFrameHead) return std::nullopt;
  if (const auto version = get_number<uint16_t>(bytes, 4); version != protocol.version)
    throw no_message(fmt::format("version {}, but only {} is supported", version, protocol.version));
  const auto kind = get_number<uint16_t>(bytes, 6);
  if (kind < 1 || kind > protocol.kinds) throw no_message(fmt::format("kind {}", kind));
  const auto size = get_number<uint32_t>(bytes, 8);
  if (size > most) throw no_message(fmt::format("{} bytes, and {} are the most", size, most));
  if (bytes.size() - kFrameHead < size) return std::nullopt;
  Frame out{kind, bytes.substr(kFrameHead, size)};
  if (hash_text(out.content).low != get_number<uint64_t>(bytes, 12)) throw no_message("its hash is another");
  bytes.erase(0, kFrameHead + size);
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

int open_listener(const Address& address, const std::string& flag) {
  const Addresses found = look_up(address, true);
  std::string why = "no address";
  for (const addrinfo* a = found.get(); a; a = a->ai_next) {
    const int fd = ::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    const int yes = 1;
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (fd >= 0 && ::bind(fd, a->ai_addr, a->ai_addrlen) == 0 && ::listen(fd, kBacklog) == 0) return fd;
    why = std::strerror(errno);
    if (fd >= 0) ::close(fd);
  }
  throw Error(Exit::user, fmt::format("cannot listen at {}:{}: {}", address.host, address.port, why),
              fmt::format("another {}, or port 0 for one that is free", flag));
}

int listener_port(int listener) {
  sockaddr_storage where{};
  socklen_t length = sizeof where;
  if (::getsockname(listener, reinterpret_cast<sockaddr*>(&where), &length) != 0) return 0;
  return ntohs(where.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(where).sin6_port
                                           : reinterpret_cast<sockaddr_in&>(where).sin_port);
}

ServeCounts serve_frames(const Address& address, const ServeLimits& limits, const Server& server,
                         const std::atomic<bool>& stop) {
  const Socket door(open_listener(address, "--listen"));
  server.listening(listener_port(door.fd()));
  ServeCounts counts;
  std::list<Visitor> visitors;
  while (!stop) {
    if (limits.answers > 0 && counts.answered >= limits.answers && visitors.empty()) break;
    std::vector<pollfd> polled;
    for (const Visitor& v : visitors) polled.push_back({v.socket().fd(), v.waits_for(), 0});
    const bool has_room = std::ssize(visitors) < limits.connections;
    if (has_room) polled.push_back({door.fd(), POLLIN, 0});
    if (::poll(polled.data(), polled.size(), kTick) < 0 && errno != EINTR)
      throw user_error("cannot wait for {}: {}", server.visitors, std::strerror(errno));
    size_t i = 0;
    for (Visitor& v : visitors)
      if (polled[i++].revents != 0) v.move(limits, server, counts);
    visitors.remove_if([&](const Visitor& v) { return v.is_over(limits); });
    if (server.goes_on && !server.goes_on()) break;
    if (!has_room || polled.back().revents == 0) continue;
    Socket s(::accept(door.fd(), nullptr, nullptr));
    if (!s.is_open()) continue;
    s.set_up();
    ++counts.connections;
    visitors.emplace_back(std::move(s));
  }
  return counts;
}

Answered ask_frame(const Address& address, const Protocol& protocol, const Frame& frame, double patience, size_t most,
                   const Peer& peer) {
  const Stopwatch watch;
  const Socket s = connect_to(address, watch, patience, peer);
  Answered out;
  Outgoing to;
  std::string from;
  to.add(packed_frame(protocol, frame));
  while (true) {
    const double left = patience - watch.seconds();
    pollfd p{s.fd(), short(to.empty() ? POLLIN : POLLIN | POLLOUT), 0};
    if (left <= 0 || ::poll(&p, 1, std::lround(std::max(0.001, left) * 1e3)) == 0)
      throw Error(Exit::user, fmt::format("the {} has not answered within {} seconds", peer.name, patience), peer.hint);
    if (!to.empty() && (p.revents & POLLIN) == 0) {
      const ssize_t n = to.send(s);
      if (n < 0) throw user_error("the {} went away: {}", peer.name, std::strerror(errno));
      out.bytes_out += n;
      continue;
    }
    // The server may refuse before it has received the whole request.
    char some[kReadAtOnce];
    const ssize_t n = ::recv(s.fd(), some, sizeof some, 0);
    if (n < 0 && would_block()) continue;
    if (n <= 0) throw Error(Exit::user, fmt::format("the {} went away before it had answered", peer.name), peer.hint);
    out.bytes_in += n;
    from.append(some, n);
    auto answer = take_frame(protocol, from, most);
    if (!answer) continue;
    if (answer->kind == protocol.no)
      throw PeerRefused(
          Exit::user, fmt::format("the {} refused: {}", peer.name, printable(answer->content.substr(0, kMostReason))));
    out.frame = std::move(*answer);
    out.seconds = watch.seconds();
    return out;
  }
}

}  // namespace lumen

#include "run/ranks/connections.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>
#include <thread>

#include "base/check.h"
#include "base/sealed/seal.h"

namespace lumen::run {
namespace {

using Clock = std::chrono::steady_clock;
constexpr char kMagic[8] = {'L', 'U', 'M', 'E', 'N', 'r', 'k', '1'};
constexpr double kGreetingSeconds = 10;  // for a stranger to say who it is

// What one end says first. Both ends are of one kind of processor, as their kernels' numbers must be.
struct Greeting {
  char magic[8];
  int32_t rank, size;
  uint8_t nonce[16];
};
struct Listener {
  char address[64];  // of this rank's host, as rank 0 sees it
  int32_t port;
};

class Deadline {
 public:
  explicit Deadline(double seconds) : end_(Clock::now() + std::chrono::milliseconds(std::llround(seconds * 1e3))) {}
  int milliseconds() const {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end_ - Clock::now()).count();
    return std::max<int64_t>(0, left);
  }
  bool is_over() const { return milliseconds() == 0; }
  Deadline at_most(double seconds) const {
    Deadline other(seconds);
    other.end_ = std::min(other.end_, end_);
    return other;
  }

 private:
  Clock::time_point end_;
};

bool wait_ready(const Socket& s, short what, const Deadline& deadline) {
  pollfd p{s.fd(), what, 0};
  return ::poll(&p, 1, deadline.milliseconds()) > 0;
}

bool move_all(const Socket& s, void* data, size_t bytes, bool out, const Deadline& deadline) {
  auto* at = reinterpret_cast<std::byte*>(data);
  while (bytes > 0) {
    const ssize_t n = out ? ::send(s.fd(), at, bytes, MSG_NOSIGNAL) : ::recv(s.fd(), at, bytes, 0);
    if (n > 0) {
      at += n;
      bytes -= n;
      continue;
    }
    if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) return false;
    if (!wait_ready(s, out ? POLLOUT : POLLIN, deadline)) return false;
  }
  return true;
}

template <class T>
bool send_value(const Socket& s, const T& value, const Deadline& deadline) {
  T copy = value;
  return move_all(s, &copy, sizeof copy, true, deadline);
}
template <class T>
bool take_value(const Socket& s, T& value, const Deadline& deadline) {
  return move_all(s, &value, sizeof value, false, deadline);
}

void set_up(const Socket& s) {
  ::fcntl(s.fd(), F_SETFL, ::fcntl(s.fd(), F_GETFL) | O_NONBLOCK);
  ::fcntl(s.fd(), F_SETFD, FD_CLOEXEC);
  const int yes = 1, idle = 5, between = 2, probes = 3, unacknowledged = 15'000;
  ::setsockopt(s.fd(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  // A host that has vanished is known after about ten seconds.
  ::setsockopt(s.fd(), SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  ::setsockopt(s.fd(), IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  ::setsockopt(s.fd(), IPPROTO_TCP, TCP_KEEPINTVL, &between, sizeof between);
  ::setsockopt(s.fd(), IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  ::setsockopt(s.fd(), IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged, sizeof unacknowledged);
}

std::string_view bytes_of(const auto& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

SealKey key_of(const std::string& token) {
  return seal({}, {"lumen ranks", token});
}

// Both ends say who they are, then seal what both have said. The rank of the other; nothing when it is none of ours.
std::optional<int> greet(const Socket& s, const TcpPlace& place, int rank, int size, bool calls, const Deadline& all) {
  const Deadline deadline = all.at_most(kGreetingSeconds);
  Greeting own{}, other{};
  std::memcpy(own.magic, kMagic, sizeof kMagic);
  own.rank = rank;
  own.size = size;
  LUMEN_CHECK(::getrandom(own.nonce, sizeof own.nonce, 0) == sizeof own.nonce);
  if (!send_value(s, own, deadline) || !take_value(s, other, deadline)) return {};
  if (std::memcmp(other.magic, kMagic, sizeof kMagic) != 0 || other.size != size || other.rank < 0 ||
      other.rank >= size || other.rank == rank)
    return {};
  const SealKey key = key_of(place.token);
  const auto sealed = [&](bool by_caller) {
    const Greeting& first = calls ? own : other;
    const Greeting& second = calls ? other : own;
    return seal(key, {by_caller ? "caller" : "called", bytes_of(first), bytes_of(second)});
  };
  Seal theirs{};
  if (!send_value(s, sealed(calls), deadline) || !take_value(s, theirs, deadline)) return {};
  if (!same_seal(theirs, sealed(!calls))) return {};
  return other.rank;
}

Socket listen_at(int port, bool must, int* chosen) {
  Socket s(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool six = s.is_open();
  if (!six) s = Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1, no = 0;
  ::setsockopt(s.fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_storage where{};
  socklen_t length = 0;
  if (six) {
    ::setsockopt(s.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    auto& a = reinterpret_cast<sockaddr_in6&>(where);
    a.sin6_family = AF_INET6;
    a.sin6_addr = in6addr_any;
    a.sin6_port = htons(port);
    length = sizeof a;
  } else {
    auto& a = reinterpret_cast<sockaddr_in&>(where);
    a.sin_family = AF_INET;
    a.sin_port = htons(port);
    length = sizeof a;
  }
  if (::bind(s.fd(), reinterpret_cast<sockaddr*>(&where), length) != 0 || ::listen(s.fd(), 128) != 0)
    throw Error(Exit::user, fmt::format("rank 0 cannot listen at port {}: {}", port, std::strerror(errno)),
                "name a free one in MASTER_PORT or LUMEN_PORT, the same for all ranks");
  LUMEN_CHECK(::getsockname(s.fd(), reinterpret_cast<sockaddr*>(&where), &length) == 0 || must);
  *chosen =
      ntohs(six ? reinterpret_cast<sockaddr_in6&>(where).sin6_port : reinterpret_cast<sockaddr_in&>(where).sin_port);
  ::fcntl(s.fd(), F_SETFL, O_NONBLOCK);
  return s;
}

// Connected, or nothing when nobody listens there yet.
std::optional<Socket> call(const std::string& host, int port, const Deadline& deadline) {
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found) != 0) return {};
  std::optional<Socket> out;
  for (addrinfo* a = found; a && !out; a = a->ai_next) {
    Socket s(::socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!s.is_open()) continue;
    if (::connect(s.fd(), a->ai_addr, a->ai_addrlen) != 0) {
      if (errno != EINPROGRESS || !wait_ready(s, POLLOUT, deadline.at_most(5))) continue;
      int error = 0;
      socklen_t length = sizeof error;
      if (::getsockopt(s.fd(), SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0) continue;
    }
    set_up(s);
    out = std::move(s);
  }
  ::freeaddrinfo(found);
  return out;
}

Error too_late(const TcpPlace& place, const std::vector<Socket>& have, int rank) {
  std::string missing;
  for (int r = 0; r < std::ssize(have); ++r)
    if (r != rank && !have[r].is_open()) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", r);
  return {
      Exit::user,
      fmt::format("rank {} has waited {:.0f} s at {}:{} without hearing of rank {}", rank, place.patience, place.host,
                  place.port, missing),
      "all ranks need the same MASTER_ADDR, MASTER_PORT, number of ranks and LUMEN_TOKEN, and a way through firewalls"};
}

std::string address_of(const Socket& s) {
  sockaddr_storage a{};
  socklen_t length = sizeof a;
  char text[NI_MAXHOST] = "";
  if (::getpeername(s.fd(), reinterpret_cast<sockaddr*>(&a), &length) == 0)
    ::getnameinfo(reinterpret_cast<sockaddr*>(&a), length, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

// Takes calls until so many ranks above this one have been heard.
void take_calls(const Socket& listener, const TcpPlace& place, int rank, int expected, const Deadline& deadline,
                std::vector<Socket>& have) {
  while (expected > 0) {
    if (deadline.is_over()) throw too_late(place, have, rank);
    if (!wait_ready(listener, POLLIN, deadline)) continue;
    Socket s(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!s.is_open()) continue;
    set_up(s);
    const std::optional<int> other = greet(s, place, rank, std::ssize(have), false, deadline);
    if (!other || *other < rank || have[*other].is_open()) continue;
    have[*other] = std::move(s);
    --expected;
  }
}

void call_until(const TcpPlace& place, const std::string& host, int port, int rank, int to, const Deadline& deadline,
                std::vector<Socket>& have) {
  while (!have[to].is_open()) {
    if (deadline.is_over()) throw too_late(place, have, rank);
    if (std::optional<Socket> s = call(host, port, deadline)) {
      if (greet(*s, place, rank, std::ssize(have), true, deadline) == to) have[to] = std::move(*s);
    }
    if (!have[to].is_open()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}
Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

std::vector<Socket> connect_ranks(const TcpPlace& place, int rank, int size) {
  const Deadline deadline(place.patience);
  std::vector<Socket> have(size);
  std::vector<Listener> where(size);
  int port = 0;
  const Socket listener = listen_at(rank == 0 ? place.port : 0, true, &port);
  if (rank == 0) {
    take_calls(listener, place, 0, size - 1, deadline, have);
    for (int r = 1; r < size; ++r) {
      if (!take_value(have[r], where[r].port, deadline)) throw too_late(place, have, rank);
      const std::string address = address_of(have[r]);
      LUMEN_CHECK(address.size() < sizeof where[r].address);
      std::memcpy(where[r].address, address.data(), address.size());
    }
    for (int r = 1; r < size; ++r)
      for (const Listener& l : where)
        if (!send_value(have[r], l, deadline)) throw too_late(place, have, rank);
    return have;
  }
  call_until(place, place.host, place.port, rank, 0, deadline, have);
  const int32_t own = port;
  bool told = send_value(have[0], own, deadline);
  for (Listener& l : where) told = told && take_value(have[0], l, deadline);
  if (!told) throw too_late(place, have, rank);
  for (int r = 1; r < rank; ++r) {
    where[r].address[sizeof where[r].address - 1] = 0;
    call_until(place, where[r].address, where[r].port, rank, r, deadline, have);
  }
  take_calls(listener, place, rank, size - 1 - rank, deadline, have);
  return have;
}

}  // namespace lumen::run

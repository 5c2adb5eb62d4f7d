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
#include <list>
#include <optional>
#include <string>
#include <thread>

#include "base/check.h"
#include "base/sealed/seal.h"

namespace lumen::run {
namespace {

using Clock = std::chrono::steady_clock;
constexpr char kMagic[8] = {'L', 'U', 'M', 'E', 'N', 'r', 'k', '1'};
constexpr double kGreetingSeconds = 10;  // for an unauthenticated peer to complete the handshake
constexpr size_t kMostCallers = 512;     // unauthenticated peers at once

// The first message of each end, as a raw struct: both have the same kind of processor, as kernels require anyway.
struct Greeting {
  char magic[8];
  int32_t rank, size;
  uint8_t nonce[16];
};
struct Listener {
  char address[64];  // of this rank's host, as seen by rank 0
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
  // A host that has vanished is detected after about ten seconds.
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

// Both ends send a greeting, then a seal of both greetings. Each step uses the bytes received so far and never blocks,
// so that many handshakes can run concurrently: a silent peer delays no other.
class Handshake {
 public:
  enum class State : uint8_t { talks, known, over };

  Handshake(Socket socket, const TcpPlace& place, int rank, int size, bool calls, const Deadline& all)
      : socket_(std::move(socket)), token_(place.token), calls_(calls), deadline_(all.at_most(kGreetingSeconds)) {
    std::memcpy(own_.magic, kMagic, sizeof kMagic);
    own_.rank = rank;
    own_.size = size;
    LUMEN_CHECK(::getrandom(own_.nonce, sizeof own_.nonce, 0) == sizeof own_.nonce);
    out_ = bytes_of(own_);
  }

  pollfd waits() const { return {socket_.fd(), short(sent_ < out_.size() ? POLLIN | POLLOUT : POLLIN), 0}; }
  const Deadline& deadline() const { return deadline_; }
  int other() const { return other_.rank; }  // valid after authentication
  Socket&& socket() { return std::move(socket_); }

  State move() {
    for (;;) {
      if (!send_some()) return State::over;
      const size_t wanted = has_greeting_ ? sizeof(Seal) : sizeof(Greeting);
      if (in_.size() == wanted) {
        if (has_greeting_) return sent_ < out_.size() ? State::talks : is_right() ? State::known : State::over;
        if (!take_greeting()) return State::over;
        continue;
      }
      char some[sizeof(Greeting) + sizeof(Seal)];
      const ssize_t n = ::recv(socket_.fd(), some, wanted - in_.size(), 0);
      if (n == 0 || (n < 0 && !is_nothing_yet())) return State::over;
      if (n < 0) return State::talks;
      in_.append(some, n);
    }
  }

 private:
  static bool is_nothing_yet() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

  bool send_some() {
    while (sent_ < out_.size()) {
      const ssize_t n = ::send(socket_.fd(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
      if (n <= 0) return n < 0 && is_nothing_yet();
      sent_ += n;
    }
    return true;
  }

  bool take_greeting() {
    std::memcpy(&other_, in_.data(), sizeof other_);
    in_.clear();
    has_greeting_ = true;
    if (std::memcmp(other_.magic, kMagic, sizeof kMagic) != 0 || other_.size != own_.size || other_.rank < 0 ||
        other_.rank >= own_.size || other_.rank == own_.rank)
      return false;
    out_ += bytes_of(sealed(calls_));
    return true;
  }

  bool is_right() const {
    Seal theirs{};
    std::memcpy(&theirs, in_.data(), sizeof theirs);
    return same_seal(theirs, sealed(!calls_));
  }

  Seal sealed(bool by_caller) const {
    const Greeting& first = calls_ ? own_ : other_;
    const Greeting& second = calls_ ? other_ : own_;
    return seal(key_of(token_), {by_caller ? "caller" : "called", bytes_of(first), bytes_of(second)});
  }

  Socket socket_;
  std::string token_, in_, out_;
  size_t sent_ = 0;
  bool calls_, has_greeting_ = false;
  Deadline deadline_;
  Greeting own_{}, other_{};
};

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

// A connected socket, or nullopt if there is no listener yet.
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

// Accepts pending connections. If there are too many, or the system has no room for more, the oldest unfinished ones
// are closed: a rank retries.
void let_in(const Socket& listener, const TcpPlace& place, int rank, int size, const Deadline& deadline,
            std::list<Handshake>& callers) {
  for (;;) {
    Socket s(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!s.is_open()) {
      const bool is_full = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (!is_full || callers.empty()) return;
      callers.pop_front();
      continue;
    }
    set_up(s);
    if (callers.size() == kMostCallers) callers.pop_front();
    callers.emplace_back(std::move(s), place, rank, size, false, deadline);
  }
}

// Accepts connections until `expected` ranks above this one are authenticated.
void take_calls(const Socket& listener, const TcpPlace& place, int rank, int expected, const Deadline& deadline,
                std::vector<Socket>& have) {
  std::list<Handshake> callers;  // the oldest first
  while (expected > 0) {
    if (deadline.is_over()) throw too_late(place, have, rank);
    std::vector<pollfd> waits{{listener.fd(), POLLIN, 0}};
    for (const Handshake& caller : callers) waits.push_back(caller.waits());
    const int until = callers.empty() ? deadline.milliseconds() : callers.front().deadline().milliseconds();
    if (::poll(waits.data(), waits.size(), until) < 0 && errno != EINTR)
      throw user_error("rank {} cannot wait for others: {}", rank, std::strerror(errno));
    size_t i = 1;
    for (auto caller = callers.begin(); caller != callers.end(); ++i) {
      const Handshake::State state = waits[i].revents != 0 ? caller->move() : Handshake::State::talks;
      const bool is_new =
          state == Handshake::State::known && caller->other() > rank && !have[caller->other()].is_open();
      if (is_new && expected > 0) {
        have[caller->other()] = caller->socket();
        --expected;
      }
      const bool stays = state == Handshake::State::talks && !caller->deadline().is_over();
      caller = stays ? std::next(caller) : callers.erase(caller);
    }
    if (waits[0].revents != 0) let_in(listener, place, rank, std::ssize(have), deadline, callers);
  }
}

void call_until(const TcpPlace& place, const std::string& host, int port, int rank, int to, const Deadline& deadline,
                std::vector<Socket>& have) {
  while (!have[to].is_open()) {
    if (deadline.is_over()) throw too_late(place, have, rank);
    if (std::optional<Socket> s = call(host, port, deadline)) {
      Handshake greeting(std::move(*s), place, rank, std::ssize(have), true, deadline);
      Handshake::State state = greeting.move();
      for (; state == Handshake::State::talks && !greeting.deadline().is_over(); state = greeting.move()) {
        pollfd p = greeting.waits();
        (void)::poll(&p, 1, greeting.deadline().milliseconds());
      }
      if (state == Handshake::State::known && greeting.other() == to) have[to] = greeting.socket();
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

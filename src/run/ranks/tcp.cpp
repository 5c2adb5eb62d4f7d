#include "run/ranks/tcp.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "run/ranks/connections.h"

namespace lumen::run {
namespace {

// The header of an exchange's bytes, or of the reason of an abort.
struct Frame {
  uint32_t magic, kind;
  uint64_t number;  // sequence number between the two ranks
  int64_t bytes;
};
constexpr int64_t kHead = sizeof(Frame);
constexpr uint32_t kFrameMagic = 0x4c524b46, kBytes = 1, kAbort = 2, kFarewell = 3;

class TcpTransport : public Transport {
 public:
  TcpTransport(std::vector<Socket> sockets, int rank) : peers_(sockets.size()), rank_(rank) {
    for (size_t r = 0; r < sockets.size(); ++r) peers_[r].socket = std::move(sockets[r]);
  }
  ~TcpTransport() override { tell_all(kFarewell, {}); }

  std::string describe() const override { return "TCP"; }

  void abort(const std::string& why) noexcept override {
    tell_all(kAbort, std::string_view(why).substr(0, kLongestReason));
  }

  void exchange(const SentPieces& to, const TakenPieces& from) override {
    std::vector<PieceWalk<SentPiece>> sent;
    std::vector<PieceWalk<TakenPiece>> taken;
    for (size_t r = 0; r < peers_.size(); ++r) {
      sent.emplace_back(to[r]);
      taken.emplace_back(from[r]);
      if (sent[r].left() > 0) ++peers_[r].sent;
      if (taken[r].left() > 0) ++peers_[r].taken;
      peers_[r].out_head = {kFrameMagic, kBytes, peers_[r].sent, sent[r].left()};
      peers_[r].out_done = sent[r].left() > 0 ? 0 : kHead;
      peers_[r].in_done = taken[r].left() > 0 ? 0 : kHead;
      peers_[r].expects = taken[r].left();
    }
    while (true) {
      std::vector<pollfd> waits;
      std::vector<int> whose;
      for (int r = 0; r < std::ssize(peers_); ++r) {
        if (r == rank_) continue;
        short what = 0;
        if (has_to_send(r, sent[r])) what |= POLLOUT;
        if (has_to_take(r, taken[r])) what |= POLLIN;
        if (what == 0) continue;
        waits.push_back({peers_[r].socket.fd(), what, 0});
        whose.push_back(r);
      }
      if (waits.empty()) return;
      const int ready = ::poll(waits.data(), waits.size(), -1);
      if (ready < 0 && errno != EINTR) throw user_error("waiting for other ranks: {}", std::strerror(errno));
      for (size_t i = 0; ready > 0 && i < waits.size(); ++i) {
        if (waits[i].revents & (POLLIN | POLLHUP | POLLERR) && has_to_take(whose[i], taken[whose[i]]))
          take(whose[i], taken[whose[i]]);
        if (waits[i].revents & (POLLOUT | POLLHUP | POLLERR) && has_to_send(whose[i], sent[whose[i]]))
          send(whose[i], sent[whose[i]]);
      }
    }
  }

  // Unexpected data can only be an abort or an end of the connection.
  void check() override {
    for (int r = 0; r < std::ssize(peers_); ++r) {
      if (r == rank_) continue;
      Frame head{};
      const ssize_t n = ::recv(peers_[r].socket.fd(), &head, sizeof head, MSG_PEEK | MSG_DONTWAIT);
      if (n == 0) throw lost(r, "its connection has ended");
      if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) throw lost(r, std::strerror(errno));
      if (n == sizeof head && head.magic == kFrameMagic && head.kind == kAbort) {
        (void)::recv(peers_[r].socket.fd(), &head, sizeof head, 0);
        throw told(r, head);
      }
    }
  }

 private:
  struct Peer {
    Socket socket;
    Frame out_head{}, in_head{};
    int64_t out_done = 0, in_done = 0;  // bytes of the frame's header
    int64_t expects = 0;
    uint64_t sent = 0, taken = 0;  // number of messages
  };

  bool has_to_send(int r, const PieceWalk<SentPiece>& walk) const {
    return walk.left() > 0 || peers_[r].out_done < kHead;
  }
  bool has_to_take(int r, const PieceWalk<TakenPiece>& walk) const {
    return walk.left() > 0 || peers_[r].in_done < kHead;
  }

  static bool is_nothing_yet(ssize_t n) { return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR); }

  void send(int r, PieceWalk<SentPiece>& walk) {
    Peer& peer = peers_[r];
    while (has_to_send(r, walk)) {
      const bool head = peer.out_done < kHead;
      const auto* bytes = reinterpret_cast<const std::byte*>(&peer.out_head) + peer.out_done;
      const SentPiece next = head ? SentPiece{bytes, kHead - peer.out_done} : walk.next();
      const ssize_t n = ::send(peer.socket.fd(), next.data, next.bytes, MSG_NOSIGNAL);
      if (is_nothing_yet(n)) return;
      if (n <= 0) {
        read_reason(r);
        throw lost(r, std::strerror(errno));
      }
      if (head)
        peer.out_done += n;
      else
        walk.advance(n);
    }
  }

  void take(int r, PieceWalk<TakenPiece>& walk) {
    Peer& peer = peers_[r];
    while (has_to_take(r, walk)) {
      const bool head = peer.in_done < kHead;
      auto* bytes = reinterpret_cast<std::byte*>(&peer.in_head) + peer.in_done;
      const TakenPiece next = head ? TakenPiece{bytes, kHead - peer.in_done} : walk.next();
      const ssize_t n = ::recv(peer.socket.fd(), next.data, next.bytes, 0);
      if (is_nothing_yet(n)) return;
      if (n == 0) throw lost(r, "its connection has ended");
      if (n < 0) throw lost(r, std::strerror(errno));
      if (!head) {
        walk.advance(n);
        continue;
      }
      peer.in_done += n;
      if (peer.in_done == kHead) check_head(r, peer);
    }
  }

  void check_head(int r, const Peer& peer) const {
    const Frame& f = peer.in_head;
    if (f.magic != kFrameMagic) throw lost(r, "it sends data that is no message");
    if (f.kind == kAbort) throw told(r, f);
    if (f.kind == kFarewell) throw lost(r, "it has ended before the others");
    if (f.kind != kBytes || f.number != peer.taken || f.bytes != peer.expects)
      throw lost(r, fmt::format("it sends {} bytes as message {}, where {} are expected as {}", f.bytes, f.number,
                                peer.expects, peer.taken));
  }

  // If sending fails, the peer may have sent a reason before.
  void read_reason(int r) const {
    Frame head{};
    if (::recv(peers_[r].socket.fd(), &head, sizeof head, MSG_DONTWAIT) == sizeof head && head.magic == kFrameMagic &&
        head.kind == kAbort)
      throw told(r, head);
  }

  RankLost told(int r, const Frame& head) const {
    std::string why(std::clamp<int64_t>(head.bytes, 0, kLongestReason), 0);
    pollfd p{peers_[r].socket.fd(), POLLIN, 0};
    (void)::poll(&p, 1, 1000);
    const ssize_t n = ::recv(peers_[r].socket.fd(), why.data(), why.size(), MSG_DONTWAIT);
    why.resize(std::max<ssize_t>(0, n));
    return {r, why, true};
  }

  static RankLost lost(int r, const std::string& why) { return {r, why}; }

  void tell_all(uint32_t kind, std::string_view text) noexcept {
    std::string message(kHead + text.size(), 0);
    const Frame head{kFrameMagic, kind, 0, std::ssize(text)};
    std::memcpy(message.data(), &head, sizeof head);
    std::copy(text.begin(), text.end(), message.begin() + sizeof head);
    for (const Peer& peer : peers_)
      if (peer.socket.is_open())
        (void)::send(peer.socket.fd(), message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  std::vector<Peer> peers_;
  int rank_;
};

}  // namespace

std::unique_ptr<Transport> join_tcp(const TcpPlace& place, int rank, int size) {
  return std::make_unique<TcpTransport>(connect_ranks(place, rank, size), rank);
}

}  // namespace lumen::run

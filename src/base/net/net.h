// Messages between processes over TCP: a server replies to each message with one message, and a client waits for it.
// Bytes from the peer are hostile: every length is checked before it is used, size and time per connection are limited,
// and a peer that violates the format gets an error and is disconnected. Proved by tests/apps/recommend/wire_test.cpp
// and tests/fuzz/apps/plan_fuzz.cpp.
//
// Every message, little-endian, starts with a header of 20 bytes:
//
// u32 magic of the protocol   u16 its version   u16 kind, 1 or more   u32 bytes of the content   u64 XXH3 of the
// content
//
// May include: base.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace lumen {

struct Protocol {
  uint32_t magic = 0;
  uint16_t version = 1;
  uint16_t kinds = 0;  // kinds 1 .. kinds are valid
  uint16_t no = 0;     // the kind of a refusal, with the reason as content; the connection ends
};

struct Frame {
  uint16_t kind = 0;
  std::string content;
};
inline constexpr size_t kFrameHead = 20, kMostReason = 512;

std::string packed_frame(const Protocol& protocol, const Frame& frame);
// Removes the first message from `bytes` and returns it; nullopt while it is incomplete. Error when the bytes are not a
// message, or the content is longer than `most`.
std::optional<Frame> take_frame(const Protocol& protocol, std::string& bytes, size_t most);
// The peer refused the request, or its reply is malformed: another attempt would end the same.
class PeerRefused : public Error {
 public:
  using Error::Error;
};

// The error for a malformed message.
PeerRefused no_message(const std::string& what);

// Integers in contents, little-endian. `at` must be in range.
template <class T>
void put_number(std::string& out, T value) {
  for (size_t i = 0; i < sizeof value; ++i) out.push_back(value >> 8 * i & 0xff);
}
template <class T>
T get_number(std::string_view bytes, size_t at) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= uint64_t{uint8_t(bytes[at + i])} << 8 * i;
  return value;
}

// "127.0.0.1:7070", "[::1]:7070", "7070" (this host).
struct Address {
  std::string host = "127.0.0.1";
  int port = 0;
};
Address parse_address(const std::string& text);  // Error (usage)

// A listening socket with non-blocking accept(); the caller closes it. `flag`: the flag to change if the address is in
// use, for the Error.
int open_listener(const Address& address, const std::string& flag);
int listener_port(int listener);

struct ServeLimits {
  int connections = 64;   // at once; more wait in the kernel's queue
  double seconds = 10;    // longest idle time of a connection, or time for one request
  double rate = 200;      // requests a second of one connection, on average; more end the connection
  int64_t answers = 0;    // in all, then the server stops; 0: no limit
  size_t most = 1 << 16;  // largest content read, in bytes
};
struct ServeCounts {
  int64_t connections = 0, answered = 0, refused = 0, bytes_in = 0, bytes_out = 0;
};
struct Server {
  Protocol protocol;
  std::string visitors;                       // name of the clients in errors: "devices"
  std::function<Frame(const Frame&)> answer;  // or throws an Error whose text is sent to the client
  std::function<void(int)> listening;         // called with the port when clients may connect
  // Checked about ten times a second and after every reply: whether to continue. May be empty.
  std::function<bool()> goes_on = {};
};
// Serves until `stop` is true or `goes_on` returns false. Port 0 picks a free one.
ServeCounts serve_frames(const Address& address, const ServeLimits& limits, const Server& server,
                         const std::atomic<bool>& stop);

// The server's name in errors, and a hint if it does not reply.
struct Peer {
  std::string name, hint;
};
struct Answered {
  Frame frame;
  int64_t bytes_out = 0, bytes_in = 0;
  double seconds = 0;
};
// Sends a request and returns the first reply, of at most `most` bytes. Error when the server is unreachable,
// disconnects (PeerRefused: when it refuses), or takes longer than `patience` seconds in all.
Answered ask_frame(const Address& address, const Protocol& protocol, const Frame& frame, double patience, size_t most,
                   const Peer& peer);

}  // namespace lumen

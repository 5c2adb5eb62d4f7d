// Messages between processes over TCP: who listens answers one message with one, who asks waits for it. Bytes from the
// other side are hostile: every length is checked before anything is read or made of it, a connection may say so much
// in so much time, and who breaks the form is told so and let go. Proved by tests/model/recommend/wire_test.cpp and
// tests/fuzz/plan_fuzz.cpp.
//
// Every message, little-endian, has 20 bytes in front of its content:
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
  uint16_t kinds = 0;  // 1 .. kinds are known
  uint16_t no = 0;     // the kind that refuses, its content says why; the connection ends
};

struct Frame {
  uint16_t kind = 0;
  std::string content;
};
inline constexpr size_t kFrameHead = 20, kMostReason = 512;

std::string packed_frame(const Protocol& protocol, const Frame& frame);
// The message at the front of `bytes`, which loses it; nothing while it is not all there. Error where the bytes are
// none, or the content is longer than `most`.
std::optional<Frame> take_frame(const Protocol& protocol, std::string& bytes, size_t most);
// What breaks the form of a message.
Error no_message(const std::string& what);

// Whole numbers in contents, little-endian. `at` must be within.
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

// "127.0.0.1:7070", "[::1]:7070", "7070" (of this host).
struct Address {
  std::string host = "127.0.0.1";
  int port = 0;
};
Address parse_address(const std::string& text);  // Error (usage)

// A socket others may connect to, of which accept() does not wait; who asks for it closes it. `flag`: what an Error
// says to change where the address is taken.
int open_listener(const Address& address, const std::string& flag);
int listener_port(int listener);

struct ServeLimits {
  int connections = 64;   // at once; more wait in the system's queue
  double seconds = 10;    // a connection may be idle, or take to say what it says
  double rate = 200;      // asks a second of one connection, on average; more end it
  int64_t answers = 0;    // in all, and then the server ends; 0: as many as come
  size_t most = 1 << 16;  // bytes of a content that is read
};
struct ServeCounts {
  int64_t connections = 0, answered = 0, refused = 0, bytes_in = 0, bytes_out = 0;
};
struct Server {
  Protocol protocol;
  std::string visitors;                       // what errors call those who come: "devices"
  std::function<Frame(const Frame&)> answer;  // or an Error whose text the other side gets
  std::function<void(int)> listening;         // told the port once others may come
  // Looked at about ten times a second, and behind every answer: whether to go on. May be empty.
  std::function<bool()> goes_on = {};
};
// Answers until `stop`, or `goes_on` says so. Port 0 takes one that is free.
ServeCounts serve_frames(const Address& address, const ServeLimits& limits, const Server& server,
                         const std::atomic<bool>& stop);

// Whom an ask goes to, as errors name it, and what to do when it does not answer.
struct Peer {
  std::string name, hint;
};
struct Answered {
  Frame frame;
  int64_t bytes_out = 0, bytes_in = 0;
  double seconds = 0;
};
// The first message that comes back, of at most `most` bytes. Error when nobody is there, goes away, says no, or takes
// longer than `patience` seconds in all.
Answered ask_frame(const Address& address, const Protocol& protocol, const Frame& frame, double patience, size_t most,
                   const Peer& peer);

}  // namespace lumen

// What a device and the cloud say to each other, and how long either waits. Bytes from the other side are hostile:
// every length is checked before anything is read or made of it, a connection may say so much in so much time, and who
// breaks the form is told so and let go. Proved by tests/model/recommend/wire_test.cpp and tests/fuzz/plan_fuzz.cpp.
//
// Every message, little-endian, has 20 bytes in front of its content:
//
//   u32 0x4e4c504c ("LPLN")   u16 version 1   u16 kind   u32 bytes of the content   u64 XXH3 of the content
//
//   kind 1  ask    u64 backbone, u16 n, u32 item n times, the oldest first      device to cloud
//   kind 2  plan   as channels.h has it                                         cloud to device
//   kind 3  no     why, as text                                                 cloud to device; the connection ends
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/recommend/channels.h"
#include "model/recommend/interactions.h"

namespace lumen::model {

enum class MessageKind : uint16_t { ask = 1, plan = 2, no = 3 };
inline constexpr size_t kMessageHead = 20, kMostAsked = 1024, kMostContent = 1 << 19, kMostReason = 512;

struct Message {
  MessageKind kind = MessageKind::no;
  std::string content;
};
std::string packed(const Message& message);
// The message at the front of `bytes`, which loses it; nothing while it is not all there. Error where the bytes are
// none, or the content is longer than `most`.
std::optional<Message> take_message(std::string& bytes, size_t most);

struct Ask {
  uint64_t backbone = 0;
  std::vector<ItemId> recent;
};
std::string pack_ask(const Ask& ask);
Ask unpack_ask(std::string_view content);

// "127.0.0.1:7070", "[::1]:7070", "7070" (of this host).
struct Address {
  std::string host = "127.0.0.1";
  int port = 0;
};
Address parse_address(const std::string& text);  // Error (usage)

struct CloudLimits {
  int connections = 64;  // at once; more wait in the system's queue
  double seconds = 10;   // a connection may be idle, or take to say what it says
  double rate = 200;     // asks a second of one connection, on average; more end it
  int64_t asks = 0;      // answered in all, and then the cloud ends; 0: as many as come
};
struct CloudCounts {
  int64_t connections = 0, answered = 0, refused = 0, bytes_in = 0, bytes_out = 0;
};
// Answers until `stop`. `answer` makes a plan, or throws an Error whose text the device gets. `listening` is told the
// port once devices may come (0 in the address: one that is free).
CloudCounts serve_plans(const Address& address, const CloudLimits& limits,
                        const std::function<Plan(const Ask&)>& answer, const std::function<void(int)>& listening,
                        const std::atomic<bool>& stop);

struct Received {
  Plan plan;
  int64_t bytes_out = 0, bytes_in = 0;
  double seconds = 0;
};
// Error when the cloud is not there, goes away, says no, or takes longer than `patience` seconds in all.
Received ask_for_plan(const Address& address, const Ask& ask, double patience);

}  // namespace lumen::model

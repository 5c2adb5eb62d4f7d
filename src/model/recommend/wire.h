// What a device and the cloud say to each other, and how long either waits; base/net has the form of messages, and who
// breaks it is told so and let go. Proved by tests/model/recommend/wire_test.cpp and tests/fuzz/plan_fuzz.cpp.
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

#include "base/net/net.h"
#include "model/recommend/channels.h"
#include "model/recommend/interactions.h"

namespace lumen::model {

enum class MessageKind : uint16_t { ask = 1, plan = 2, no = 3 };
inline constexpr size_t kMessageHead = kFrameHead, kMostAsked = 1024, kMostContent = 1 << 19;

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

using lumen::Address;
using lumen::parse_address;

struct CloudLimits {
  int connections = 64;  // at once; more wait in the system's queue
  double seconds = 10;   // a connection may be idle, or take to say what it says
  double rate = 200;     // asks a second of one connection, on average; more end it
  int64_t asks = 0;      // answered in all, and then the cloud ends; 0: as many as come
};
using CloudCounts = ServeCounts;
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

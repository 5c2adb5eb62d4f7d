// Messages between a device and the cloud, and their timeouts; base/net defines the frame. A peer that violates it gets
// an error and is disconnected. Proved by tests/apps/recommend/wire_test.cpp and tests/fuzz/apps/plan_fuzz.cpp.
//
// Every message, little-endian, has a header of 20 bytes:
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

#include "apps/recommend/channels.h"
#include "apps/recommend/interactions.h"
#include "base/net/net.h"

namespace lumen::recommend {

enum class MessageKind : uint16_t { ask = 1, plan = 2, no = 3 };
inline constexpr size_t kMessageHead = kFrameHead, kMostAsked = 1024, kMostContent = 1 << 19;

struct Message {
  MessageKind kind = MessageKind::no;
  std::string content;
};
std::string packed(const Message& message);
// Removes and returns the message at the front of `bytes`; nullopt while it is incomplete. Error where the bytes are
// not a message, or the content is longer than `most`.
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
  int connections = 64;  // concurrent; more wait in the system's queue
  double seconds = 10;   // limit for an idle connection, and for receiving a request
  double rate = 200;     // requests per second of one connection, on average; above it the connection ends
  int64_t asks = 0;      // requests answered before the cloud ends; 0: unlimited
};
using CloudCounts = ServeCounts;
// Serves until `stop`. `answer` makes a plan, or throws an Error whose text is sent to the device. `listening` receives
// the port once devices can connect (port 0 in the address: any free port).
CloudCounts serve_plans(const Address& address, const CloudLimits& limits,
                        const std::function<Plan(const Ask&)>& answer, const std::function<void(int)>& listening,
                        const std::atomic<bool>& stop);

struct Received {
  Plan plan;
  int64_t bytes_out = 0, bytes_in = 0;
  double seconds = 0;
};
// Error when the cloud is unreachable, disconnects, refuses, or takes longer than `patience` seconds in total.
Received ask_for_plan(const Address& address, const Ask& ask, double patience);

}  // namespace lumen::recommend

// Messages between clients and the server of a federated run. Clients send requests, the server answers; base/net
// defines the frame of messages. Bytes from the other side are hostile: counts and lengths are checked before use, and
// numbers must be finite where needed. Proved by tests/apps/federate/messages_test.cpp and
// tests/fuzz/apps/federate_fuzz.cpp.
//
// Contents, little-endian; text: u16 length in bytes, then those bytes; f64 and f32 as in IEEE 754.
//
//   kind 1  hello    text name, u64 key                                                        client
//   kind 2  welcome  the run as JSON                                                           server
//   kind 3  join     name, key, u64 model, u64 examples, u32 classes, f64 count each,          client
//                    f64 rate, set-up, memory of float, P, Q, f64 memory there, f64 link
//   kind 4  ask      name, key                                                                 client
//   kind 5  task     u32 round, u64 base, u8 strategy, f64 seconds to the deadline,            server
//                    u32 tensors: text name, u32 bytes, f32 each
//   kind 6  wait     f64 seconds, text why                                                     server
//   kind 7  update   name, key, u32 round, u64 base, u8 strategy, u64 examples,                client
//                    f64 first loss, last loss, off, set-up, seconds, link, u32 tensors: text name, u32 bytes, bytes
//   kind 8  verdict  u8 1: taken, 0: too late                                                  server
//   kind 9  done     u32 rounds                                                                server
//   kind 10 no       why, as text; the connection ends                                         server
//
// With secure sums (secure/secure.h) an update has one tensor, "key", of 32 bytes, and losses of 0. It is repeated
// until a verdict comes; the answer is "wait", or a request:
//
//   kind 11 group    u32 round, u64 base, u32 attempt, u32 members: text name, u64 examples,   server
//                    32 bytes of key
//   kind 12 masked   name, key, u32 round, u64 base, u32 attempt, u32 bytes, u32 words         client
//   kind 13 tell     u32 round, u64 base, u32 attempt                                          server
//   kind 14 seed     name, key, u32 round, u64 base, u32 attempt, 32 bytes                     client
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "apps/federate/local.h"
#include "apps/federate/secure/secure.h"
#include "base/net/net.h"

namespace lumen::federate {

enum class FederateKind : uint16_t {
  hello = 1,
  welcome,
  join,
  ask,
  task,
  wait,
  update,
  verdict,
  done,
  no,
  group,
  masked,
  tell,
  seed
};
inline constexpr Protocol kFederate{.magic = 0x44464d4c, .version = 1, .kinds = 14, .no = 10};  // "LMFD"
inline constexpr size_t kMostName = 64, kMostTensors = 4096, kMostWelcome = 1 << 20, kMostClasses = 1 << 16,
                        kMostMembers = 1 << 16;

// A client's identity: a name (letters, digits, . _ -) and a secret random number, drawn when it first joins.
struct ClientName {
  std::string name;
  uint64_t key = 0;
  friend bool operator==(const ClientName&, const ClientName&) = default;
};
// Error when it is not a valid name.
void require_client_name(const std::string& name);

struct JoinMessage {
  ClientName who;
  uint64_t model = 0, examples = 0;
  std::vector<double> counts{};  // by class; empty: labels are private
  std::array<double, kStrategies> rate{}, set_up{}, memory{};
  double memory_there = 0, link = 0;  // bytes; bytes per second; 0: not known
  friend bool operator==(const JoinMessage&, const JoinMessage&) = default;
};
struct TaskMessage {
  uint32_t round = 0;
  uint64_t base = 0;  // hash of the weights
  ClientStrategy strategy = ClientStrategy::whole;
  double seconds = 0;
  Weights weights{};
  friend bool operator==(const TaskMessage&, const TaskMessage&) = default;
};
struct WaitMessage {
  double seconds = 0;
  std::string why;
  friend bool operator==(const WaitMessage&, const WaitMessage&) = default;
};
struct UpdateMessage {
  ClientName who;
  uint32_t round = 0;
  uint64_t base = 0;
  ClientStrategy strategy = ClientStrategy::whole;
  uint64_t examples = 0;
  double first_loss = 0, last_loss = 0, off = 0, set_up = 0, seconds = 0, link = 0;
  ClientChange change{};
};

// Identifies an attempt at a sum.
struct SumAttempt {
  uint32_t round = 0;
  uint64_t base = 0;
  uint32_t attempt = 0;
  friend bool operator==(const SumAttempt&, const SumAttempt&) = default;
};
struct MaskedMessage {
  ClientName who;
  SumAttempt of{};
  std::vector<uint32_t> words{};
  friend bool operator==(const MaskedMessage&, const MaskedMessage&) = default;
};
struct SeedMessage {
  ClientName who;
  SumAttempt of{};
  KeyBytes seed{};
  friend bool operator==(const SeedMessage&, const SeedMessage&) = default;
};

std::string pack_speaker(const ClientName& who);
ClientName unpack_speaker(std::string_view content);
std::string pack_join(const JoinMessage& m);
JoinMessage unpack_join(std::string_view content);
std::string pack_weights(const Weights& weights);  // u32 tensors: text name, u32 bytes, f32 each
Weights unpack_weights(std::string_view content);  // Error, too, when a number is not finite
std::string pack_task(const TaskMessage& m);
TaskMessage unpack_task(std::string_view content);
std::string pack_wait(const WaitMessage& m);
WaitMessage unpack_wait(std::string_view content);
std::string pack_update(const UpdateMessage& m);
UpdateMessage unpack_update(std::string_view content);
std::string pack_group(const SumGroup& m);
SumGroup unpack_group(std::string_view content);
std::string pack_masked(const MaskedMessage& m);
MaskedMessage unpack_masked(std::string_view content);
std::string pack_tell(const SumAttempt& m);
SumAttempt unpack_tell(std::string_view content);
std::string pack_seed(const SeedMessage& m);
SeedMessage unpack_seed(std::string_view content);

inline Frame frame_of(FederateKind kind, std::string content) {
  return {uint16_t(kind), std::move(content)};
}

// The hash of all weights, in the order of their names.
uint64_t hash_of(const Weights& weights);

}  // namespace lumen::federate

// Both ends of a secure sum (secure.h): a client's, for one update, and the server's, for one round.
#pragma once

#include <chrono>
#include <map>
#include <optional>

#include "apps/federate/secure/secure.h"

namespace lumen::federate {

// A client's part, for one update. Its secrets are never stored: a client that crashes leaves the group.
class SumPartner {
 public:
  explicit SumPartner(std::string name) : name_(std::move(name)) {}
  const KeyBytes& key() const { return key_.open(); }
  // The numbers for this group: scaled by the share of the group's examples, in fixed point, masked. Error when the
  // group does not suit it (require_group, its own name and key, a later attempt than before), or a mask was already
  // revealed.
  std::vector<uint32_t> masked(const SumGroup& group, std::span<const float> numbers);
  // Reveals its own mask of the newest attempt. Error when `attempt` is another one, or a mask was already revealed.
  KeyBytes told(uint32_t attempt);

 private:
  std::string name_;
  AgreementKey key_;
  uint32_t attempt_ = 0;
  KeyBytes own_{};
  bool is_told_ = false;
};

// The server's state of a round. Clients are indices in the order of their names.
class SumRound {
 public:
  enum class Request : uint8_t { nothing, words, seed };
  using Clock = std::chrono::steady_clock;
  // Attempts are numbered from the current time on: a restarted server repeats no number.
  SumRound(uint32_t round, uint64_t base, size_t words);

  // A client is ready. False, without effect, once there is a group. Error when its key is invalid, or another's.
  bool offer(int64_t client, GroupMember member);
  // The message that a client must send now.
  Request request(int64_t client) const;
  const SumGroup& group() const { return group_; }
  // Ignored unless requested, as in repeated messages. Error when of another size.
  void take_words(int64_t client, uint32_t attempt, std::vector<uint32_t> words);
  void take_seed(int64_t client, uint32_t attempt, const KeyBytes& seed);

  // Advances when all requested messages have arrived, or `deadline` seconds have passed since the first offer, the
  // group or the last words: `expected` clients may offer. Clients that have not sent words by then are left out, and
  // the others form a new group.
  void look(size_t expected, double deadline);
  bool is_lost() const { return is_lost_; }  // too few are left, or a seed did not arrive
  bool is_there() const { return !seeds_.empty() && seeds_.size() == members_.size(); }
  std::vector<int64_t> members() const;
  // The sum of all members' numbers, once complete.
  std::vector<uint32_t> sum() const;

 private:
  void group_of(std::map<int64_t, GroupMember> members);
  bool is_late(double deadline) const;

  SumGroup group_;
  size_t words_;
  std::map<int64_t, GroupMember> members_;  // offering clients; then the group
  std::map<int64_t, std::vector<uint32_t>> taken_;
  std::map<int64_t, KeyBytes> seeds_;
  std::optional<Clock::time_point> since_;
  bool has_group_ = false, is_waiting_ = false /* for seeds */, is_lost_ = false;
};

}  // namespace lumen::federate

// Both ends of a sum of which nobody sees the terms (secure.h): a client's, of one update, and the server's, of one
// round.
#pragma once

#include <chrono>
#include <map>
#include <optional>

#include "model/federate/secure/secure.h"

namespace lumen::model {

// A client's part, for one update. What it holds is never written down: who dies leaves the group.
class SumPartner {
 public:
  explicit SumPartner(std::string name) : name_(std::move(name)) {}
  const KeyBytes& key() const { return key_.open(); }
  // The numbers as this group needs them: in shares of the group's examples, whole, masked. Error when it is no group
  // for it (require_group, its own name and key, a later attempt than those before), or one was told already.
  std::vector<uint32_t> masked(const SumGroup& group, std::span<const float> numbers);
  // Its own mask of the newest attempt. Error when that is another one, or one was told already.
  KeyBytes told(uint32_t attempt);

 private:
  std::string name_;
  AgreementKey key_;
  uint32_t attempt_ = 0;
  KeyBytes own_{};
  bool is_told_ = false;
};

// What the server knows of a round. Clients are numbers in the order of their names.
class SumRound {
 public:
  enum class Request : uint8_t { nothing, words, seed };
  using Clock = std::chrono::steady_clock;
  // Attempts are numbered from the time on: a server that comes back has none twice.
  SumRound(uint32_t round, uint64_t base, size_t words);

  // Somebody is ready. False, and nothing changes, once there is a group. Error when it has no key, or another's.
  bool offer(int64_t client, GroupMember member);
  // What a client must send now.
  Request request(int64_t client) const;
  const SumGroup& group() const { return group_; }
  // Error when it is not wished for, or of another size. One that comes again is forgotten.
  void take_words(int64_t client, uint32_t attempt, std::vector<uint32_t> words);
  void take_seed(int64_t client, uint32_t attempt, const KeyBytes& seed);

  // Goes on where all have sent what was wished for, or `deadline` seconds have passed since the first offer, the group
  // or the last word: `expected` clients may offer. Whoever has not sent words by then is left out, and the others are
  // a new group.
  void look(size_t expected, double deadline);
  bool is_lost() const { return is_lost_; }  // too few are left, or one's seed did not come
  bool is_there() const { return !seeds_.empty() && seeds_.size() == members_.size(); }
  std::vector<int64_t> members() const;
  // The sum of all members' numbers, once it is there.
  std::vector<uint32_t> sum() const;

 private:
  void group_of(std::map<int64_t, GroupMember> members);
  bool is_late(double deadline) const;

  SumGroup group_;
  size_t words_;
  std::map<int64_t, GroupMember> members_;  // those who offer; then the group
  std::map<int64_t, std::vector<uint32_t>> taken_;
  std::map<int64_t, KeyBytes> seeds_;
  std::optional<Clock::time_point> since_;
  bool has_group_ = false, is_waiting_ = false /* for seeds */, is_lost_ = false;
};

}  // namespace lumen::model

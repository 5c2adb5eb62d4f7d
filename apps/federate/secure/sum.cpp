#include "apps/federate/secure/sum.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace lumen::federate {
namespace {

std::string mask_purpose(const SumGroup& group, const std::string& first, const std::string& second) {
  return fmt::format("lumen federate mask | {} | {} | {} | {} | {}", group.round, group.base, group.attempt, first,
                     second);
}

}  // namespace

std::vector<uint32_t> SumPartner::masked(const SumGroup& group, std::span<const float> numbers) {
  require_group(group);
  if (is_told_ || group.attempt <= attempt_) throw user_error("the server requests an update a second time");
  const auto own = std::ranges::find(group.members, name_, &GroupMember::name);
  if (own == group.members.end() || own->key != key()) throw user_error("the server's group is without '{}'", name_);
  double examples = 0;
  for (const GroupMember& m : group.members) examples += double(m.examples);
  std::vector<uint32_t> out = fixed_words(numbers, double(own->examples) / examples);
  for (const GroupMember& m : group.members) {
    if (m.name == name_) continue;
    const bool is_first = name_ < m.name;
    add_mask(out,
             derived_key(key_.agreed(m.key), mask_purpose(group, is_first ? name_ : m.name, is_first ? m.name : name_)),
             !is_first);
  }
  own_ = drawn_bytes();
  add_mask(out, own_, false);
  attempt_ = group.attempt;
  return out;
}

KeyBytes SumPartner::told(uint32_t attempt) {
  if (is_told_ || attempt == 0 || attempt != attempt_)
    throw user_error("the server requests a mask that it must not see");
  is_told_ = true;
  return own_;
}

SumRound::SumRound(uint32_t round, uint64_t base, size_t words) : words_(words) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  group_.round = round;
  group_.base = base;
  group_.attempt = uint32_t(std::chrono::duration_cast<std::chrono::seconds>(now).count());
}

bool SumRound::offer(int64_t client, GroupMember member) {
  if (has_group_ || is_lost_) return false;
  (void)AgreementKey().agreed(member.key);
  for (const auto& [number, m] : members_)
    if (number != client && m.key == member.key) throw user_error("two clients have one key");
  if (!since_) since_ = Clock::now();
  members_[client] = std::move(member);
  return true;
}

SumRound::Request SumRound::request(int64_t client) const {
  if (!has_group_ || is_lost_ || !members_.contains(client)) return Request::nothing;
  if (!taken_.contains(client)) return Request::words;
  return taken_.size() == members_.size() && !seeds_.contains(client) ? Request::seed : Request::nothing;
}

void SumRound::take_words(int64_t client, uint32_t attempt, std::vector<uint32_t> words) {
  if (attempt != group_.attempt || request(client) != Request::words) return;
  if (words.size() != words_) throw user_error("{} numbers, not {}", words.size(), words_);
  taken_[client] = std::move(words);
}

void SumRound::take_seed(int64_t client, uint32_t attempt, const KeyBytes& seed) {
  if (attempt == group_.attempt && request(client) == Request::seed) seeds_[client] = seed;
}

bool SumRound::is_late(double deadline) const {
  return since_ && std::chrono::duration<double>(Clock::now() - *since_).count() > deadline;
}

void SumRound::group_of(std::map<int64_t, GroupMember> members) {
  members_ = std::move(members);
  taken_.clear();
  has_group_ = true;
  ++group_.attempt;
  group_.members.clear();
  for (const auto& [client, m] : members_) group_.members.push_back(m);
  since_ = Clock::now();
  is_lost_ = members_.size() < kLeastGroup;
}

void SumRound::look(size_t expected, double deadline) {
  if (is_lost_ || is_there()) return;
  if (!has_group_) {
    if (members_.size() == expected || is_late(deadline)) group_of(std::move(members_));
    return;
  }
  if (taken_.size() < members_.size()) {
    if (!is_late(deadline)) return;
    std::map<int64_t, GroupMember> rest = members_;
    std::erase_if(rest, [&](const auto& m) { return !taken_.contains(m.first); });
    group_of(std::move(rest));
  } else if (seeds_.empty() && !is_waiting_) {
    is_waiting_ = true;
    since_ = Clock::now();
  } else {
    is_lost_ = is_late(deadline);
  }
}

std::vector<int64_t> SumRound::members() const {
  std::vector<int64_t> out;
  for (const auto& [client, m] : members_) out.push_back(client);
  return out;
}

std::vector<uint32_t> SumRound::sum() const {
  LUMEN_CHECK(is_there());
  std::vector<uint32_t> out(words_);
  for (const auto& [client, words] : taken_) {
    std::vector<uint32_t> own = words;
    add_mask(own, seeds_.at(client), true);
    for (size_t i = 0; i < out.size(); ++i) out[i] += own[i];
  }
  return out;
}

}  // namespace lumen::federate

// Rounds in which the server sees only sums of updates (apps/federate/secure).
#include <algorithm>

#include "apps/federate/rounds/rounds.h"
#include "base/error.h"

namespace lumen::federate {
namespace {

constexpr double kAskSoon = 0.1;
constexpr const char* kKeyTensor = "key";

}  // namespace

std::vector<float> numbers_of(const Weights& weights, double last) {
  std::vector<float> out;
  for (const auto& [name, numbers] : weights) out.insert(out.end(), numbers.begin(), numbers.end());
  out.push_back(float(last));
  return out;
}

ClientChange key_instead(const KeyBytes& key) {
  ClientChange out;
  out.tensors.emplace_back(kKeyTensor, std::vector<uint8_t>(key.begin(), key.end()));
  return out;
}

void FederateServer::offered(Registered& from, const UpdateMessage& m) {
  const auto& tensors = m.change.tensors;
  if (tensors.size() != 1 || tensors[0].first != kKeyTensor || tensors[0].second.size() != kKeyBytes)
    throw user_error("the run accepts only masked updates, but '{}' would send its update", m.who.name);
  require_strategy(from, m);
  GroupMember member{.name = m.who.name, .examples = from.join.examples};
  std::copy(tensors[0].second.begin(), tensors[0].second.end(), member.key.begin());
  if (!sum_->offer(from.number, std::move(member))) return;
  UpdateMessage facts = m;
  facts.change = {};
  answered_[from.number] = std::move(facts);
}

// The reply to a client's message about an attempt: the next request, or the outcome.
Frame FederateServer::wished_of(Registered& from, const SumAttempt& of) {
  look_at_clock();
  const bool is_taken = from.taken_base == of.base && from.taken_round == of.round + 1;
  if (is_taken || is_done() || int64_t{of.round} != round_ || of.base != base_)
    return frame_of(FederateKind::verdict, std::string(1, is_taken ? 1 : 0));
  switch (sum_->request(from.number)) {
    case SumRound::Request::words:
      return frame_of(FederateKind::group, pack_group(sum_->group()));
    case SumRound::Request::seed:
      return frame_of(FederateKind::tell, pack_tell({of.round, of.base, sum_->group().attempt}));
    default:
      return frame_of(FederateKind::wait, pack_wait({kAskSoon, "others have to answer"}));
  }
}

void FederateServer::look_at_sum() {
  sum_->look(sampled_.size(), settings_.deadline);
  if (!sum_->is_lost() && !sum_->is_there()) return;
  const std::vector<int64_t> members = sum_->is_there() ? sum_->members() : std::vector<int64_t>();
  std::erase_if(answered_, [&](const auto& a) { return !std::ranges::binary_search(members, a.first); });
  for (const int64_t client : members) {
    Registered& r = registered_.at(names_[size_t(client)]);
    r.taken_round = uint32_t(round_) + 1;
    r.taken_base = base_;
  }
  close_round();
}

// Adds the sum, which is the mean by examples, to the weights; returns the number after the weights, the mean loss.
double FederateServer::add_sum() {
  const std::vector<uint32_t> sum = sum_->sum();
  size_t at = 0;
  for (auto& [name, weights] : global_)
    for (float& w : weights) w = float(w + fixed_number(sum[at++]));
  return fixed_number(sum[at]);
}

}  // namespace lumen::federate

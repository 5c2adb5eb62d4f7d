// The draw from a distant row: the winner of a race (race.h), decided by the groups that lead where all tokens in doubt
// take part.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "model/infer/sample/distant_row.h"
#include "model/infer/sample/weights.h"

namespace lumen::model {

struct DistantRow::Entry {
  double low = 0, high = 0;  // of the ratio: without and with the tokens in doubt
  double seen = 0;           // of the ratio of visible_, with them
  Candidate token{-1, -1};   // its winner
  bool is_sure = false;      // whether the winner is the same whichever of them are kept
  bool is_known = false;     // whether all of its tokens are
};

DistantRow::Entry DistantRow::enter(int64_t group, const Race& race, double temperature) const {
  std::vector<Candidate> tokens;
  const auto add = [&](const Candidate& c) {
    const bool is_removed = std::ranges::count(removed_, c.id) > 0;
    if (c.id / Race::kGroup == group && !is_removed && far_.has(c)) tokens.push_back(c);
  };
  Entry out;
  const auto weight = [&](const Candidate& c) { return std::exp((c.logit - top_.front().logit) / temperature); };
  const double number = race.of_group(group);
  out.is_known = is_complete_ || groups_.contains(group);
  if (is_complete_) {
    std::ranges::for_each(top_, add);
  } else {
    if (const auto found = groups_.find(group); found != groups_.end())
      for (size_t i = 0; i < found->second.size(); ++i) {
        const auto id = TokenId(group * Race::kGroup + int64_t(i));
        if (visible_.has(id)) add({id, found->second[i]});
      }
    for (const Candidate& c : tokens) out.seen += weight(c) / number;
    std::ranges::for_each(extra_, add);
  }
  std::sort(tokens.begin(), tokens.end(), [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  double best = -1, best_in_doubt = -1;
  for (const Candidate& c : tokens) {
    const double w = weight(c), own = w / race.of_token(c.id);
    out.high += w / number;
    if (!near_.has(c)) {
      best_in_doubt = std::max(best_in_doubt, own);
      continue;
    }
    out.low += w / number;
    if (own <= best) continue;
    best = own;
    out.token = c;
  }
  out.is_sure = best > best_in_doubt;
  return out;
}

void DistantRow::look_for_race(uint32_t seed, uint64_t number, double temperature) {
  const bool is_same = has_raced_ && raced_without_ == removed_.size() && raced_range_.high == far_.high &&
                       raced_range_.edge.id == far_.edge.id && raced_range_.edge.logit == far_.edge.logit;
  if (is_same) return;
  Need need;
  need.kind = Need::Kind::race;
  need.asked.temperature = temperature;
  need.asked.seed = seed;
  need.asked.number = number;
  ask(std::move(need));
}

void DistantRow::look_for_group(int64_t group) {
  Need need;
  need.kind = Need::Kind::group;
  const int64_t first = group * Race::kGroup;
  for (int64_t i = first; i < std::min(vocabulary_, first + Race::kGroup); ++i) need.asked.ids.push_back(TokenId(i));
  ask(std::move(need));
}

Candidate DistantRow::winner(uint32_t seed, uint64_t number, double temperature) {
  LUMEN_CHECK(!top_.empty());
  if (!is_complete_) look_for_race(seed, number, temperature);
  const Race race(seed, number);
  std::map<int64_t, Entry> entries;
  for (const auto& [group, logits] : groups_) entries.emplace(group, enter(group, race, temperature));
  for (const Candidate& c : is_complete_ ? top_ : extra_)
    if (const int64_t group = c.id / Race::kGroup; !entries.contains(group))
      entries.emplace(group, enter(group, race, temperature));
  // Of the visible tokens of groups that are not known.
  double bound = 0;
  if (raced_ && raced_->has_others) {
    bound = std::numeric_limits<double>::infinity();
    for (const Narrowed::Group& g : raced_->front) bound = std::min(bound, entries.at(g.number).seen);
    bound *= 1 + Narrowed::kSumError;
  }
  int64_t lead = -1, next = -1;  // `next`: the group that is best to be known, too
  for (auto& [group, entry] : entries) {
    if (!entry.is_known) entry.high += bound;
    if (lead < 0 || entry.low > entries.at(lead).low) lead = group;
  }
  if (lead < 0) throw Undecided();
  double rival = bound;
  for (const auto& [group, entry] : entries) {
    if (group != lead) rival = std::max(rival, entry.high);
    const bool may_win = group == lead || entry.high >= entries.at(lead).low;
    if (!entry.is_known && may_win && (next < 0 || entry.high > entries.at(next).high)) next = group;
  }
  const Entry& first = entries.at(lead);
  if (first.is_known && first.is_sure && first.low > rival) return first.token;
  if (next >= 0) look_for_group(next);
  if (is_exact_) throw Undecided();
  is_exact_ = true;
  throw Again();
}

}  // namespace lumen::model

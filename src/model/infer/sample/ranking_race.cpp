// Draws from a ranking's tokens: the winner of a race (race.h), in which only those groups are looked at that can win.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "model/infer/sample/ranking.h"

namespace lumen::model::infer {
namespace {

int64_t group_of(const Candidate& c) {
  return c.id / Race::kGroup;
}

}  // namespace

RaceEntry Ranking::enter(int64_t group, std::span<const float> logits, const Race& race, double temperature) const {
  std::vector<Candidate> tokens;
  tokens.reserve(Race::kGroup);
  const auto add = [&](const Candidate& c) {
    if (!cut_ || cut_->far.has(c.logit)) tokens.push_back(c);
  };
  each_in_group(group, logits, add);
  const size_t unchanged = tokens.size();
  for (const Candidate& c : extra_)
    if (group_of(c) == group) add(c);
  if (tokens.size() > unchanged)
    std::sort(tokens.begin(), tokens.end(), [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  return enter_race(
      race, group, tokens, [&](const Candidate& c) { return weight_of(c, temperature); },
      [&](const Candidate& c) { return !cut_ || cut_->near.has(c.logit); });
}

Candidate Ranking::winner(const Race& race, double temperature) {
  if (!cut_) LUMEN_CHECK(has(0));
  if (!complete_ && narrowed_) return winner_of_narrowed(race, temperature);
  // Weights are relative to the best token, which need not be kept by then; none may vanish.
  constexpr double kDeepest = 500;
  if (cut_ && (ranked_[0].logit - cut_->near.high) / temperature > kDeepest) settle();
  LUMEN_CHECK(cut_ || has(0));
  if (complete_ || is_small()) return winner_of_list(left(), race, temperature);
  if (const std::optional<Candidate> found = winner_of_whole(race, temperature)) return *found;
  if (!cut_->is_refined) {
    refine();
    if (const std::optional<Candidate> found = winner_of_whole(race, temperature)) return *found;
  }
  settle();
  LUMEN_CHECK(has(0));
  return *winner_of_whole(race, temperature);
}

Candidate Ranking::winner_of_list(std::vector<Candidate> tokens, const Race& race, double temperature) const {
  std::sort(tokens.begin(), tokens.end(), [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  double most = -1;
  Candidate out{-1, -1};
  for (size_t first = 0, end = 0; first < tokens.size(); first = end) {
    const int64_t group = group_of(tokens[first]);
    double sum = 0;
    for (end = first; end < tokens.size() && group_of(tokens[end]) == group; ++end)
      sum += weight_of(tokens[end], temperature);
    const double ratio = sum / race.of_group(group);
    if (ratio <= most) continue;
    most = ratio;
    double best = -1;
    for (size_t i = first; i < end; ++i) {
      const double own = weight_of(tokens[i], temperature) / race.of_token(tokens[i].id);
      if (own <= best) continue;
      best = own;
      out = tokens[i];
    }
  }
  return out;
}

// A group's ratio is at most that of as many tokens as its best one. The group with the largest bound leads at first;
// others are looked at only where their bound, and then their sum in f32, could be more. Nothing if a token in doubt
// could change the result.
std::optional<Candidate> Ranking::winner_of_whole(const Race& race, double temperature) {
  constexpr double kSumError = 1e-3;  // relative; more than what sums of weights in f32 have
  const double best = ranked_[0].logit;
  const float floor = cut_ ? std::max(least_, cut_->far.low) : least_, ceiling = cut_ ? cut_->far.high : kMostLogit;
  const std::vector<float>& most = peaks();
  const double scale = scale_of(temperature);
  const Weighing how{float(best), float(scale), floor, {floor, ceiling}, {}, false};
  const double unit = std::exp((double{how.best} - best) * scale);
  std::vector<float> bounds(most.size());
  race.least_of_groups(bounds);
  race_bounds(most, how, ceiling, bounds);
  const auto start = size_t(std::max_element(bounds.begin(), bounds.end()) - bounds.begin());
  const auto logits_of = [&](size_t g) {
    const size_t first = g * Race::kGroup;
    return logits_.subspan(first, std::min<size_t>(Race::kGroup, logits_.size() - first));
  };
  const auto bound_of = [&](size_t g) {
    double sum = sum_weights(logits_, most, how, hidden_, g, g + 1).near * unit * (1 + kSumError);
    // Lighter weights are not in it.
    sum += double(Race::kGroup) * std::exp(-kDepth);
    for (const Candidate& c : extra_)
      if (group_of(c) == int64_t(g)) sum += weight_of(c, temperature);
    return sum / race.of_group(int64_t(g));
  };
  RaceEntry lead = enter(int64_t(start), logits_of(start), race, temperature);
  size_t leader = start;
  double rival = -1;  // the largest upper bound of the ratios of the others
  for (size_t g = 0; g < most.size(); ++g) {
    if (g == start || bounds[g] < 0 || bounds[g] * unit < lead.low || bound_of(g) < lead.low) continue;
    RaceEntry entry = enter(int64_t(g), logits_of(g), race, temperature);
    if (entry.low > lead.low || (entry.low == lead.low && g < leader)) {
      std::swap(entry, lead);
      leader = g;
    }
    rival = std::max(rival, entry.high);
  }
  if (cut_ && (rival >= lead.low || !lead.is_sure)) return std::nullopt;
  return lead.token;
}

Candidate Ranking::winner_of_narrowed(const Race& race, double temperature) const {
  const Narrowed& n = *narrowed_;
  if (n.front.empty() || n.race_key != race.key() || n.temperature != temperature) throw Undecided();
  RaceEntry lead;
  double bound = std::numeric_limits<double>::infinity();  // of the ratios of other groups with all their tokens
  for (const Narrowed::Group& group : n.front) {
    double sum = 0;
    for (size_t i = 0; i < group.logits.size(); ++i) sum += weight_of({0, group.logits[i]}, temperature);
    bound = std::min(bound, sum / race.of_group(group.number));
    RaceEntry entry = enter(group.number, group.logits, race, temperature);
    if (entry.low > lead.low) lead = std::move(entry);
  }
  if (!n.has_others) return lead.token;
  bound *= 1 + Narrowed::kSumError;
  const auto is_in_front = [&](int64_t number) {
    return std::any_of(n.front.begin(), n.front.end(), [&](const Narrowed::Group& g) { return g.number == number; });
  };
  // Tokens with changed logits add to their group's ratio at most their own.
  double changed = 0;
  for (const Candidate& c : extra_)
    if (!is_in_front(group_of(c))) changed += weight_of(c, temperature) / race.of_group(group_of(c));
  if (!(bound + changed < lead.low)) throw Undecided();
  return lead.token;
}

}  // namespace lumen::model::infer

#include "model/infer/sample/distant_row.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "model/infer/sample/race_entry.h"
#include "model/infer/sample/ranking.h"
#include "model/infer/sample/weights.h"

namespace lumen::model::infer {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();
constexpr Candidate kAll{kEveryId, kNever};    // an edge above which everything is,
constexpr Candidate kNone{kEveryId, -kNever};  // and one above which nothing is

// A draw is tried where the tokens in doubt have at most this share of the weight. Where it fails, they may have what
// errors of sums in f32 allow, and no more.
constexpr double kDoubt = 4e-3, kLeastDoubt = 16 * Tally::kError;
constexpr double kDepthOfGrid = 25;  // in units of the temperature; what is below counts little
constexpr int kMostPasses = 10;

const Candidate& better_of(const Candidate& a, const Candidate& b) {
  return is_better(a, b) ? a : b;
}

// The tokens with at least this logit.
Candidate edge_at(float logit) {
  return {kEveryId, logit};
}

}  // namespace

DistantRow::DistantRow(Narrowed known)
    : vocabulary_(known.vocabulary), known_(std::move(known)), logits_(known_.asked.begin(), known_.asked.end()) {}

void DistantRow::learn(std::optional<Narrowed> seen) {
  ++passes_;
  switch (need_.kind) {
    case Need::Kind::logits:
      if (!seen) throw Undecided();
      logits_.insert(seen->asked.begin(), seen->asked.end());
      break;
    case Need::Kind::best:
      if (!seen) throw Undecided();
      known_ = std::move(*seen);
      has_looked_ = true;
      break;
    case Need::Kind::race:
      groups_.clear();
      raced_ = std::move(seen);
      raced_range_ = far_;
      raced_without_ = removed_.size();
      has_raced_ = true;
      if (!raced_) break;
      for (const Narrowed::Group& g : raced_->front) groups_[g.number] = g.logits;
      break;
    case Need::Kind::group: {
      if (!seen) throw Undecided();
      std::vector<float>& group = groups_[need_.asked.ids.front() / Race::kGroup];
      for (const text::TokenId id : need_.asked.ids) group.push_back(float(seen->asked.at(id)));
      break;
    }
    case Need::Kind::tallies:
      LUMEN_CHECK(false);
  }
}

void DistantRow::learn(const Tallies& tallies) {
  LUMEN_CHECK(need_.kind == Need::Kind::tallies && tallies.of_edges.size() == need_.edges.size());
  ++passes_;
  for (size_t i = 0; i < need_.edges.size(); ++i)
    counted_[need_.edges[i]] = {tallies.of_edges[i], need_.best, need_.center, tallies.magnitude};
  counted_[kAll] = {tallies.all, need_.best, need_.center, tallies.magnitude};
  sum_ = tallies.sum;
  squares_ = tallies.squares;
}

void DistantRow::ask(Need need) {
  if (passes_ >= kMostPasses) throw Undecided();
  if (need.kind == Need::Kind::race || need.kind == Need::Kind::group) {
    // Edges of tokens with changed logits need not be f32 numbers.
    const auto edge = at_least(far_.edge.logit);
    need.range = {{edge == far_.edge.logit ? far_.edge.id : kEveryId, edge}, far_.high};
    need.allowed = visible_;
    for (const text::TokenId id : removed_) need.allowed.remove(id);
  }
  need_ = std::move(need);
  throw Missing();
}

double DistantRow::logit(text::TokenId id, const std::vector<text::TokenId>& all) {
  if (const auto found = logits_.find(id); found != logits_.end()) return found->second;
  Need need;
  need.kind = Need::Kind::logits;
  for (const text::TokenId other : all)
    if (!logits_.contains(other) && std::ssize(need.asked.ids) < Race::kGroup) need.asked.ids.push_back(other);
  need.allowed = TokenSet(vocabulary_);
  need.allowed.add_all_outside({});
  ask(std::move(need));
}

void DistantRow::begin(TokenSet allowed, const std::unordered_map<text::TokenId, double>& changed, double temperature,
                       bool is_exact) {
  is_exact_ = is_exact_ || is_exact;
  visible_ = std::move(allowed);
  temperature_ = temperature;
  extra_.clear();
  top_.clear();
  removed_.clear();
  near_ = far_ = {};
  for (const auto& [id, logit] : changed) {
    if (id < 0 || !visible_.has(id)) continue;
    visible_.remove(id);
    if (logit > kNever) extra_.push_back({id, logit});
  }
  for (const Candidate& c : known_.best)
    if (visible_.has(c.id)) top_.push_back(c);
  is_complete_ = known_.is_complete;
  floor_ = is_complete_ ? kAll : known_.best.back();
  require_top(1);
  best_ = top_.empty() ? 0 : float(top_.front().logit);
  for (const Candidate& c : extra_)
    if (!is_better(floor_, c)) top_.push_back(c);
  std::sort(top_.begin(), top_.end(), is_better);
  sums_.clear();
  double sum = 0;
  for (const Candidate& c : top_) sums_.push_back(sum += weight_of(c.logit));
}

void DistantRow::require_top(size_t count) {
  if (top_.size() >= count || is_complete_) return;
  if (has_looked_) throw Undecided();
  Need need;
  need.kind = Need::Kind::best;
  need.allowed = visible_;
  ask(std::move(need));
}

double DistantRow::weight_of(double logit) const {
  return std::exp((logit - top_.front().logit) / temperature_);
}

int64_t DistantRow::count() {
  require({kAll});
  return int64_t(sums_above(kAll).count.low);
}

// --- Sums above edges

DistantRow::Sums DistantRow::known_sums(const Candidate& edge) const {
  const auto n = size_t(std::upper_bound(top_.begin(), top_.end(), edge, is_better) - top_.begin());
  const double weight = n == 0 ? 0 : sums_[n - 1];
  Sums out{{double(n), double(n)}, {weight, weight}};
  return out;
}

DistantRow::Sums DistantRow::counted_sums(const Candidate& edge, const Counted& counted) const {
  const double error = Tally::kError, factor = std::exp((counted.best - top_.front().logit) / temperature_);
  Sums out;
  out.count = {counted.tally.count, counted.tally.count};
  out.weight = {counted.tally.weight * factor * (1 - error), counted.tally.weight * factor * (1 + error)};
  Bounds moment{(counted.tally.moment - error * counted.magnitude) * factor,
                (counted.tally.moment + error * counted.magnitude) * factor};
  for (const Candidate& c : extra_) {
    if (is_better(edge, c)) continue;
    const double w = weight_of(c.logit);
    for (double* const n : {&out.count.low, &out.count.high}) *n += 1;
    for (double* const n : {&out.weight.low, &out.weight.high}) *n += w;
    for (double* const n : {&moment.low, &moment.high}) *n += w * (c.logit - counted.center);
  }
  out.mean = {counted.center + moment.low / (moment.low > 0 ? out.weight.high : out.weight.low),
              counted.center + moment.high / (moment.high > 0 ? out.weight.low : out.weight.high)};
  return out;
}

// Between two edges that are known, sums are bounded by those of the two.
DistantRow::Sums DistantRow::sums_above(const Candidate& edge) const {
  if (!is_better(floor_, edge)) return known_sums(edge);
  const auto next = counted_.lower_bound(edge);  // not better
  if (next != counted_.end() && !is_better(edge, next->first)) return counted_sums(edge, next->second);
  Sums out = known_sums(floor_);
  if (next != counted_.begin()) {
    const auto before = std::prev(next);
    if (is_better(floor_, before->first)) out = counted_sums(before->first, before->second);
  }
  const double most = std::numeric_limits<double>::infinity();
  const Sums above =
      next == counted_.end() ? Sums{{most, most}, {most, most}} : counted_sums(next->first, next->second);
  out.count.high = above.count.high;
  out.weight.high = above.weight.high;
  out.mean = {kNever, -kNever};
  return out;
}

// The tokens that are above the highest logit that is kept.
Candidate DistantRow::over(float high) {
  return high == kMostLogit ? kNone : edge_at(std::nextafter(high, kMostLogit));
}

// Sums of the tokens that are kept and above an edge.
DistantRow::Sums DistantRow::kept_above(const Candidate& edge) const {
  const Sums least = sums_above(better_of(edge, near_.edge)), most = sums_above(better_of(edge, far_.edge)),
             over_least = sums_above(over(near_.high)), over_most = sums_above(over(far_.high));
  Sums out;
  out.count = {std::max(0.0, least.count.low - over_least.count.high), most.count.high - over_most.count.low};
  out.weight = {std::max(0.0, least.weight.low - over_least.weight.high), most.weight.high - over_most.weight.low};
  return out;
}

DistantRow::Bounds DistantRow::total() {
  require({near_.edge, far_.edge, over(near_.high), over(far_.high)});
  return kept_above(kAll).weight;
}

// --- Counting on the device

void DistantRow::ask_for(std::vector<Candidate> edges, double center) {
  // The rest of the edges are spread over the logits that have most of the weight.
  const int64_t rest = RowSource::kMostEdges - std::ssize(edges);
  LUMEN_CHECK(rest >= 0);
  if (!counted_.contains(kAll))
    for (int64_t i = 1; i <= rest; ++i)
      edges.push_back(edge_at(float(best_ - temperature_ * kDepthOfGrid * std::pow(double(i) / double(rest), 1.5))));
  Need need;
  need.kind = Need::Kind::tallies;
  need.allowed = visible_;
  need.edges = std::move(edges);
  need.temperature = temperature_;
  need.best = best_;
  need.center = float(center);
  ask(std::move(need));
}

double DistantRow::center() const {
  const auto all = counted_.find(kAll);
  return all == counted_.end() ? best_ - 4 * temperature_ : double{all->second.center};
}

void DistantRow::require(const std::vector<Candidate>& edges) {
  std::vector<Candidate> missing;
  for (const Candidate& edge : edges)
    if (is_better(floor_, edge) && !counted_.contains(edge)) missing.push_back(edge);
  if (missing.empty()) return;
  std::erase_if(missing, [](const Candidate& edge) { return edge.logit == kNever; });
  ask_for(std::move(missing), center());
}

// Edges between two others. Once no f32 number lies between their logits, equal logits are told apart by their ids.
std::vector<Candidate> DistantRow::split(const Candidate& better, const Candidate& worse) const {
  const int64_t most = RowSource::kMostEdges;
  const double high = std::min(better.logit, double{best_}), low = worse.logit;
  std::vector<Candidate> out;
  const auto add = [&](const Candidate& edge) {
    if (is_better(better, edge) && is_better(edge, worse) && (out.empty() || is_better(out.back(), edge)))
      out.push_back(edge);
  };
  if (low == kNever) {
    double down = temperature_ / 4;
    for (int64_t i = 0; i < most; ++i, down *= 1.35) add(edge_at(float(high - down)));
    return out;
  }
  for (int64_t i = 1; i <= most; ++i) add(edge_at(float(high - (high - low) * double(i) / double(most + 1))));
  if (!out.empty()) return out;
  add(edge_at(at_least(high)));
  const bool is_one = better.logit == low;
  const int64_t first = is_one ? better.id : -1, last = std::min<int64_t>(worse.id, vocabulary_ - 1);
  for (int64_t i = 1; i < most; ++i) add({text::TokenId(first + (last - first) * i / most), float(low)});
  return out;
}

// --- Cuts

void DistantRow::narrow(const Candidate& near, const Candidate& far) {
  near_.edge = better_of(near, near_.edge);
  far_.edge = better_of(far, far_.edge);
  // The best token always stays.
  if (near_.high == kMostLogit && is_better(near_.edge, top_.front())) near_.edge = top_.front();
  if (far_.high == kMostLogit && is_better(far_.edge, top_.front())) far_.edge = top_.front();
}

// Cuts after the token with which something is reached.
void DistantRow::cut(const std::function<Reach(const Sums&)>& reach, bool is_counted) {
  Candidate no = kNone, yes = kAll;
  bool is_clear = true;  // nothing is unknown in between
  const auto see = [&](const Candidate& edge) {
    const Reach reached = reach(kept_above(edge));
    if (reached == Reach::exactly) no = yes = edge;
    if (reached == Reach::yes) yes = edge;
    if (reached == Reach::no) no = edge;
    is_clear = reached == Reach::no || (is_clear && reached != Reach::unknown);
    return reached == Reach::no || reached == Reach::unknown;
  };
  bool goes_on = true;
  for (size_t i = 0; goes_on && i < top_.size(); ++i) goes_on = see(top_[i]);
  for (auto at = counted_.upper_bound(floor_); goes_on && at != counted_.end(); ++at) goes_on = see(at->first);
  const Sums at_no = kept_above(no), at_yes = kept_above(yes);
  const bool is_next = at_no.count.low == at_no.count.high && at_yes.count.low == at_yes.count.high &&
                       at_yes.count.low == at_no.count.low + 1;
  if (is_next) no = yes;
  const bool is_own = is_better(yes, far_.edge);  // this cut is the narrowest so far
  narrow(no, yes);
  if (!is_own || !is_better(no, yes)) return;
  const Bounds all = kept_above(kAll).weight;
  const Sums least = kept_above(no);
  const double doubt = all.high - least.weight.low;
  const bool is_too_much = is_exact_ ? is_counted || doubt > kLeastDoubt * all.high : !(doubt <= kDoubt * all.high);
  if (!is_too_much || !is_clear) return;
  if (std::vector<Candidate> between = split(no, yes); !between.empty()) ask_for(std::move(between), center());
}

void DistantRow::keep(int64_t most) {
  const auto wanted = double(most);
  if (!is_complete_ && wanted > double(top_.size())) require({kAll});
  cut(
      [&](const Sums& kept) {
        if (kept.count.low == wanted && kept.count.high == wanted) return Reach::exactly;
        return kept.count.low >= wanted ? Reach::yes : kept.count.high < wanted ? Reach::no : Reach::unknown;
      },
      true);
}

void DistantRow::keep_share(double share, double least) {
  const Bounds all = share < 1 ? total() : Bounds();
  if (least > 0) keep_weights(least);
  if (share == 1) return;
  cut(
      [&](const Sums& kept) {
        if (Ranking::reaches(kept.weight.low, share, all.high)) return Reach::yes;
        return Ranking::reaches(kept.weight.high, share, all.low) ? Reach::unknown : Reach::no;
      },
      false);
}

void DistantRow::keep_down_to(double low, double high) {
  narrow(edge_at(at_least(high)), edge_at(at_most(low)));
}

void DistantRow::keep_weights(double least) {
  double low = top_.front().logit, high = low;  // of the best token that is kept
  if (far_.high < kMostLogit) {
    high = std::min<double>(high, far_.high);
    require({over(near_.high)});
    const double before = sums_above(over(near_.high)).count.high;
    low = kNever;
    for (const auto& [edge, counted] : counted_) {
      if (edge.logit > near_.high || !(counted_sums(edge, counted).count.low > before)) continue;
      if (is_better(near_.edge, edge)) break;
      low = edge.logit;
      break;
    }
    if (low == kNever) throw Undecided();
  }
  const double down = std::log(least), slack = 1e-9 * (1 + std::fabs(high) + std::fabs(low));
  keep_down_to(low + down - slack, high + down + slack);
}

void DistantRow::leave_out(size_t count) {
  for (size_t i = 0; i < count; ++i) removed_.push_back(top_[i].id);
}

DistantRow::Bounds DistantRow::standard_deviation() {
  if (is_complete_) throw Undecided();
  require({kAll});
  const Counted& all = counted_.at(kAll);
  double n = all.tally.count, sum = sum_, squares = squares_;
  const double error = Tally::kError * (std::sqrt(n * squares) + 1), square_error = Tally::kError * squares;
  for (const Candidate& c : extra_) {
    const double x = c.logit - all.center;
    n += 1;
    sum += x;
    squares += x * x;
  }
  const double mean = sum / n, slack = error / n;
  const double least = std::max(0.0, std::fabs(mean) - slack), most = std::fabs(mean) + slack;
  const double low = std::max(0.0, (squares - square_error) / n - most * most),
               high = std::max(0.0, (squares + square_error) / n - least * least);
  const Bounds out{std::sqrt(low), std::sqrt(high)};
  const bool is_far = std::fabs(mean) > out.high / 4 && out.high - out.low > kDoubt / 8;
  if (is_far && passes_ < kMostPasses / 2) {
    const auto center = float(all.center + mean);
    if (center != all.center) ask_for({edge_at(at_least(top_.front().logit - out.high))}, center);
  }
  return out;
}

// The tokens within a distance of a middle, and the share of the weight that they have. The middle is the mean of
// logits by weight, which is known up to `slack`; so distances are.
void DistantRow::keep_typical(double share) {
  if (share == 1) return;
  if (is_complete_) throw Undecided();
  require({kAll, near_.edge, far_.edge});
  if (!is_better(floor_, near_.edge)) throw Undecided();  // a few tokens, whose mean is not counted
  const Bounds all = kept_above(kAll).weight;
  const Bounds mean{sums_above(far_.edge).mean.low, sums_above(near_.edge).mean.high};
  const double now = (mean.low + mean.high) / 2;
  constexpr double kMoved = 1e-4;
  if (!middle_ || std::fabs(*middle_ - now) > kMoved) middle_ = float(now);
  const double middle = *middle_;
  const double slack = std::max(std::fabs(mean.low - middle), std::fabs(mean.high - middle)) +
                       1e-6 * (1 + std::fabs(middle) + std::fabs(top_.front().logit));
  const TokenRange near_before = near_, far_before = far_;
  const auto within = [&](double distance) {
    const Candidate low = edge_at(float(middle - distance)), high = over(float(middle + distance));
    const Sums above = sums_above(high);
    const Sums least = sums_above(better_of(low, near_before.edge)), most = sums_above(better_of(low, far_before.edge));
    return Sums{{std::max(0.0, least.count.low - above.count.high), most.count.high - above.count.low},
                {std::max(0.0, least.weight.low - above.weight.high), most.weight.high - above.weight.low}};
  };
  std::vector<double> distances;
  const auto add = [&](double logit) {
    // An edge above the middle is the logit that follows the highest one within the distance.
    distances.push_back(logit > middle ? std::nextafter(float(logit), -kMostLogit) - middle : middle - logit);
  };
  for (const Candidate& c : top_) add(c.logit);
  for (const auto& [edge, counted] : counted_)
    if (edge.logit > kNever) add(edge.logit);
  std::sort(distances.begin(), distances.end());
  double no = 0, yes = std::numeric_limits<double>::infinity();
  for (const double d : distances) {
    if (d < 0) continue;
    const Bounds mass = within(d).weight;
    if (mass.high < share * all.low) no = d;
    if (mass.low < share * all.high) continue;
    yes = d;
    break;
  }
  const double most = std::max(top_.front().logit - middle, 1.5 * kDepthOfGrid * temperature_),
               end = std::min(yes, most);
  const double doubt = (yes > most ? all.high : within(yes).weight.high) - within(no).weight.low;
  const double width = end - no;
  if (doubt > (is_exact_ ? 2 * kLeastDoubt : kDoubt) * all.high && width > 4 * slack) {
    const auto count = RowSource::kMostEdges / 2;
    std::vector<Candidate> edges;
    for (int64_t i = 1; i <= count; ++i) {
      const double d = no + width * double(i) / double(count);
      edges.push_back(edge_at(float(middle - d)));
      edges.push_back(over(float(middle + d)));
    }
    ask_for(std::move(edges), middle);
  }
  const auto range = [&](double distance, bool is_wide) {
    const double low = middle - distance, high = middle + distance;
    return is_wide ? TokenRange{edge_at(at_most(low)), at_least(high)}
                   : TokenRange{edge_at(at_least(low)), at_most(high)};
  };
  const double least = no - 2 * slack, last = yes + 2 * slack;
  if (std::isfinite(last)) far_ = range(last, true);
  near_ = least > 0 ? range(least, false) : TokenRange{kNone};
  // Where one token is between the two, it is needed for the share.
  if (is_exact_ && std::isfinite(last)) require({near_.edge, over(near_.high), far_.edge, over(far_.high)});
  const Bounds inside = near_.edge.logit == kNone.logit ? Bounds() : within(std::max(0.0, least)).count;
  if (std::isfinite(last) && within(last).count.high - inside.low == 1) near_ = far_;
  near_.edge = better_of(near_.edge, near_before.edge);
  far_.edge = better_of(far_.edge, far_before.edge);
}

// --- The draw: the winner of a race (race.h), decided by the groups that lead where all tokens in doubt take part

struct DistantRow::Entry : RaceEntry {
  double seen = 0;        // of the ratio of visible_, with the tokens in doubt
  bool is_known = false;  // whether all of its tokens are
};

DistantRow::Entry DistantRow::enter(int64_t group, const Race& race, double temperature) const {
  std::vector<Candidate> tokens;
  const auto add = [&](const Candidate& c) {
    const bool is_removed = std::ranges::count(removed_, c.id) > 0;
    if (c.id / Race::kGroup == group && !is_removed && far_.has(c)) tokens.push_back(c);
  };
  const auto weigh = [&](const Candidate& c) { return std::exp((c.logit - top_.front().logit) / temperature); };
  double seen = 0;
  if (is_complete_) {
    std::ranges::for_each(top_, add);
  } else {
    if (const auto found = groups_.find(group); found != groups_.end())
      for (size_t i = 0; i < found->second.size(); ++i) {
        const auto id = text::TokenId(group * Race::kGroup + int64_t(i));
        if (visible_.has(id)) add({id, found->second[i]});
      }
    for (const Candidate& c : tokens) seen += weigh(c);
    std::ranges::for_each(extra_, add);
  }
  std::sort(tokens.begin(), tokens.end(), [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  Entry out{enter_race(race, group, tokens, weigh, [&](const Candidate& c) { return near_.has(c); })};
  // What is not known is added to it.
  out.low = std::max(out.low, 0.0);
  out.high = std::max(out.high, 0.0);
  out.seen = seen / race.of_group(group);
  out.is_known = is_complete_ || groups_.contains(group);
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
  for (int64_t i = first; i < std::min(vocabulary_, first + Race::kGroup); ++i)
    need.asked.ids.push_back(text::TokenId(i));
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
  // The most that visible tokens of other groups have.
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

}  // namespace lumen::model::infer

#include "model/compress/choose/solve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <tuple>

#include "base/error.h"
#include "model/compress/choose/parts.h"

namespace lumen::model::compress {
namespace {

constexpr double kRounding = 1e-12;  // of sums, relative to their size
using Points = std::vector<PartPoint>;
using Fronts = std::vector<Points>;

// Indices of the points on the lower convex hull.
std::vector<uint32_t> hull(const Points& points) {
  std::vector<uint32_t> out;
  for (uint32_t i = 0; i < points.size(); ++i) {
    while (out.size() > 1) {
      const PartPoint &a = points[out[out.size() - 2]], &b = points[out.back()], &c = points[i];
      if ((b.value - a.value) * (c.cost - a.cost) < (c.value - a.value) * (b.cost - a.cost)) break;
      out.pop_back();
    }
    out.push_back(i);
  }
  return out;
}

// A step of a part along its hull.
struct Step {
  double gain = 0, cost = 0;  // both > 0
  uint32_t part = 0, to = 0;
};

// All steps, best gain per cost first: the greedy choice is optimal at every prefix.
std::vector<Step> steps_of(const Fronts& fronts) {
  std::vector<Step> out;
  for (uint32_t p = 0; p < fronts.size(); ++p) {
    const std::vector<uint32_t> corners = hull(fronts[p]);
    for (size_t i = 1; i < corners.size(); ++i) {
      const PartPoint &a = fronts[p][corners[i - 1]], &b = fronts[p][corners[i]];
      out.push_back({a.value - b.value, b.cost - a.cost, p, corners[i]});
    }
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Step& a, const Step& b) { return a.gain * b.cost > b.gain * a.cost; });
  return out;
}

// The dual solution: the budget's price, a lower bound for every choice, and a choice that fits.
struct Dual {
  double price = 0, bound = 0;
  std::vector<uint32_t> picks;
};

double least_cost(const Fronts& fronts) {
  double out = 0;
  for (const Points& p : fronts) out += p.front().cost;
  return out;
}

double least_value(const Fronts& fronts) {
  double out = 0;
  for (const Points& p : fronts) out += p.back().value;
  return out;
}

double size_of(const Fronts& fronts) {
  double out = 0;
  for (const Points& p : fronts) out += std::max({1e-300, std::abs(p.front().value), std::abs(p.back().value)});
  return out;
}

// `budget` must be at least the least cost.
Dual dual_of(const Fronts& fronts, double budget) {
  Dual out;
  out.picks.assign(fronts.size(), 0);
  double room = budget - least_cost(fronts);
  for (const Step& s : steps_of(fronts)) {
    if (s.cost <= room) {
      // Steps of a part come in hull order, so its last step is its pick.
      room -= s.cost;
      out.picks[s.part] = s.to;
      continue;
    }
    out.price = s.gain / s.cost;
    break;
  }
  for (const Points& p : fronts) {
    double least = std::numeric_limits<double>::infinity();
    for (const PartPoint& x : p) least = std::min(least, x.value + out.price * x.cost);
    out.bound += least;
  }
  out.bound -= out.price * budget;
  return out;
}

struct Sum {
  double cost = 0, value = 0;
};
Sum sum_of(const Fronts& fronts, std::span<const uint32_t> picks) {
  Sum out;
  for (size_t p = 0; p < fronts.size(); ++p) {
    out.cost += fronts[p][picks[p]].cost;
    out.value += fronts[p][picks[p]].value;
  }
  return out;
}

// Spends the rest of the budget on single parts, the largest gain first.
void spend(const Fronts& fronts, double budget, std::vector<uint32_t>& picks) {
  double room = budget - sum_of(fronts, picks).cost;
  for (;;) {
    double most = 0;
    size_t best = 0;
    uint32_t to = 0;
    for (size_t p = 0; p < fronts.size(); ++p) {
      const Points& points = fronts[p];
      const PartPoint& now = points[picks[p]];
      const auto end = std::upper_bound(points.begin(), points.end(), now.cost + room,
                                        [](double cost, const PartPoint& x) { return cost < x.cost; });
      const uint32_t at = end - points.begin() - 1;
      if (end == points.begin() || at == picks[p] || now.value - points[at].value <= most) continue;
      most = now.value - points[at].value;
      best = p;
      to = at;
    }
    if (most <= 0) return;
    room -= fronts[best][to].cost - fronts[best][picks[best]].cost;
    picks[best] = to;
  }
}

// Dynamic programming over the parts' points that may belong to a better choice than the known one.
class Join {
 public:
  Join(const Fronts& fronts, double budget, const Dual& dual, double known, double step, size_t most)
      : fronts_(fronts), budget_(budget), price_(dual.price), most_(most) {
    const double rounding = kRounding * (size_of(fronts) + std::abs(known) + dual.price * budget);
    room_ = known - dual.bound - std::max(step, rounding) + rounding;
    for (uint32_t p = 0; p < fronts.size(); ++p) add_part(p);
    std::stable_sort(parts_.begin(), parts_.end(), [](const Kept& a, const Kept& b) { return a.most > b.most; });
  }

  // The best choice that is better than the known one; empty when there is none.
  std::vector<uint32_t> run() {
    if (hopeless_) return {};
    std::vector<double> least(parts_.size() + 1, 0);  // cost of part p and all later ones
    for (size_t p = parts_.size(); p-- > 0;) least[p] = least[p + 1] + parts_[p].least;
    std::vector<std::vector<State>> layers = {{State{}}};
    size_t all = 1;
    for (size_t p = 0; p < parts_.size(); ++p) {
      const size_t left = std::max<size_t>((most_ - std::min(most_, all)) / (parts_.size() - p), 64);
      std::vector<State> next = step(layers.back(), parts_[p], budget_ - fixed_cost_ - least[p + 1], left);
      all += next.size();
      if (next.empty()) return {};
      layers.push_back(std::move(next));
    }
    return trace(layers);
  }
  bool whole() const { return whole_; }

 private:
  struct State {
    double cost = 0, value = 0;
    uint32_t from = 0, point = 0;
  };
  struct Kept {
    uint32_t part = 0;
    std::vector<uint32_t> points;  // of the part
    double least = 0, most = 0;    // cost
    double base = 0;               // least value + price * cost
  };

  void add_part(uint32_t p) {
    Kept kept;
    kept.part = p;
    kept.base = std::numeric_limits<double>::infinity();
    for (const PartPoint& x : fronts_[p]) kept.base = std::min(kept.base, x.value + price_ * x.cost);
    for (uint32_t i = 0; i < fronts_[p].size(); ++i)
      if (fronts_[p][i].value + price_ * fronts_[p][i].cost - kept.base <= room_) kept.points.push_back(i);
    if (kept.points.empty()) {  // no choice is better than the known one
      hopeless_ = true;
      return;
    }
    kept.least = fronts_[p][kept.points.front()].cost;
    kept.most = fronts_[p][kept.points.back()].cost - kept.least;
    only_.resize(fronts_.size());
    if (kept.points.size() == 1) {
      only_[p] = kept.points[0];
      fixed_cost_ += kept.least;
      return;
    }
    parts_.push_back(std::move(kept));
  }

  // States are sorted by ascending cost. `most`: cost that leaves room for the later parts; `count`: of states, at
  // most.
  std::vector<State> step(const std::vector<State>& states, const Kept& kept, double most, size_t count) {
    base_ += kept.base;
    std::vector<State> all;
    size_t limit = 4 * count;
    for (const uint32_t i : kept.points) {
      const PartPoint& x = fronts_[kept.part][i];
      for (uint32_t s = 0; s < states.size(); ++s) {
        const State next{states[s].cost + x.cost, states[s].value + x.value, s, i};
        if (next.cost > most) break;
        if (next.value + price_ * next.cost - base_ <= room_) all.push_back(next);
      }
      if (all.size() < limit) continue;
      drop_beaten(all);
      if (all.size() > 2 * count) thin(all, 2 * count);
      limit = all.size() + 2 * count;
    }
    drop_beaten(all);
    if (all.size() > count) thin(all, count);
    return all;
  }

  static void drop_beaten(std::vector<State>& states) {
    std::sort(states.begin(), states.end(), [](const State& a, const State& b) {
      return std::tie(a.cost, a.value, a.point, a.from) < std::tie(b.cost, b.value, b.point, b.from);
    });
    size_t count = 0;
    for (const State& s : states)
      if (count == 0 || s.value < states[count - 1].value) states[count++] = s;
    states.resize(count);
  }

  // Too many states: keeps those nearest to the dual's line, and the result is no longer proved optimal.
  void thin(std::vector<State>& states, size_t most) {
    whole_ = false;
    std::vector<double> far;
    for (const State& s : states) far.push_back(s.value + price_ * s.cost);
    std::nth_element(far.begin(), far.begin() + most, far.end());
    const double limit = far[most];
    std::erase_if(states, [&](const State& s) { return s.value + price_ * s.cost > limit; });
  }

  std::vector<uint32_t> trace(const std::vector<std::vector<State>>& layers) const {
    std::vector<uint32_t> picks = only_;
    uint32_t at = layers.back().size() - 1;  // values are descending
    for (size_t p = parts_.size(); p-- > 0;) {
      const State& s = layers[p + 1][at];
      picks[parts_[p].part] = s.point;
      at = s.from;
    }
    return picks;
  }

  const Fronts& fronts_;
  const double budget_, price_;
  const size_t most_;
  double room_ = 0, fixed_cost_ = 0, base_ = 0;
  bool whole_ = true, hopeless_ = false;
  std::vector<Kept> parts_;
  std::vector<uint32_t> only_;  // of parts with one point left
};

struct Solution {
  std::vector<uint32_t> picks;
  double bound = 0;
  bool proved = false;
};

// `step`: minimal improvement of a better choice; 0: not known.
Solution solve(const Fronts& fronts, double budget, double step, const ChoiceOptions& options) {
  Solution out;
  if (fronts.empty()) return {{}, 0, true};
  Dual dual = dual_of(fronts, budget);
  out.picks = dual.picks;
  spend(fronts, budget, out.picks);
  const double known = sum_of(fronts, out.picks).value;
  const double rounding = kRounding * (size_of(fronts) + std::abs(known) + dual.price * budget);
  out.bound = std::max(dual.bound, least_value(fronts));
  out.proved = known - out.bound <= rounding || (step > 0 && known - out.bound < step - rounding);
  if (!out.proved && !options.fast) {
    Join join(fronts, budget, dual, known, step, options.states);
    const std::vector<uint32_t> better = join.run();
    if (!better.empty()) {
      const Sum sum = sum_of(fronts, better);
      if (sum.cost <= budget && sum.value < known) out.picks = better;
    }
    out.proved = join.whole();
  }
  if (out.proved) out.bound = sum_of(fronts, out.picks).value;
  return out;
}

// Swaps costs and values.
Points turned(const Points& points) {
  Points out;
  for (const PartPoint& p : points) out.push_back({p.value, p.cost, p.code});
  return undominated(std::move(out));
}

struct Joined {
  Fronts fronts;
  Fronts relaxed;  // with separate items for parts that were not enumerated
  bool whole = true;
};

Joined joined(const std::vector<ChoicePart>& parts, bool turn) {
  Joined out;
  const auto add = [&](Fronts& to, const Points& points) { to.push_back(turn ? turned(points) : points); };
  for (const ChoicePart& p : parts) {
    add(out.fronts, p.points);
    if (p.whole) {
      add(out.relaxed, p.points);
      continue;
    }
    out.whole = false;
    for (const Points& item : p.relaxed) add(out.relaxed, item);
  }
  return out;
}

[[noreturn]] void refuse(const ChoiceProblem& problem, const Budget& budget, double least, bool whole) {
  std::string possible;
  if (budget.limits_score()) {
    possible = budget.kind == Budget::Kind::loss ? fmt::format("ppl=+{:.6g}%", 100 * std::expm1(least))
                                                 : fmt::format("kl={:.6g}", least);
  } else if (budget.kind == Budget::Kind::time) {
    possible = fmt::format("{:.6g} ms", least * 1e-6);
  } else {
    const double weights = problem.weights();
    possible = fmt::format("{:.0f} bytes", least);
    if (weights > 0) possible += fmt::format(" ({:.4f} bits per weight)", std::ceil(8e4 * least / weights) / 1e4);
  }
  throw Error(
      Exit::user,
      fmt::format("the budget {} is below the least {}, {}", budget.text(), whole ? "possible" : "found", possible),
      "raise the budget, or offer smaller formats");
}

double greatest_divisor(const Fronts& fronts, bool of_values) {
  int64_t unit = 0;
  for (const Points& points : fronts)
    for (const PartPoint& p : points) {
      const int64_t x = of_values ? p.value - points.front().value : p.cost;
      unit = std::gcd(unit, x);
    }
  return (std::max<int64_t>(unit, 1));
}

}  // namespace

Choice choose(const ChoiceProblem& problem, const Budget& budget, const ChoiceOptions& options) {
  problem.require_whole();
  const bool timed = budget.kind == Budget::Kind::time, turn = budget.limits_score();
  const std::vector<ChoicePart> parts =
      parts_of(problem, timed ? ChoiceCost::time : ChoiceCost::bytes, options.assignments);
  const Joined all = joined(parts, turn);
  const double fixed = timed ? nanoseconds(problem.fixed_ms) : turn ? 0 : problem.fixed_bytes;
  double most = timed  ? std::floor(budget.value * 1e6 + 1e-6)
                : turn ? budget.most_score()
                       : budget.most_bytes(problem.weights());
  most -= fixed;
  const double least = least_cost(all.fronts);
  if (turn) most += kRounding * (std::abs(most) + std::abs(least));
  if (most < least) refuse(problem, budget, least + fixed, all.whole || !turn);
  const Solution solved = solve(all.fronts, most, turn ? greatest_divisor(all.fronts, true) : 0, options);
  std::vector<std::vector<size_t>> picks;
  for (const ChoiceBlock& block : problem.blocks) picks.emplace_back(block.items.size());
  for (size_t p = 0; p < parts.size(); ++p) {
    const ChoicePart& part = parts[p];
    part.write(problem.blocks[part.block], all.fronts[p][solved.picks[p]].code, picks[part.block]);
  }
  Choice out = figures(problem, std::move(picks));
  const double reached = turn ? out.bytes : out.score, offset = turn ? problem.fixed_bytes : 0.0;
  out.bound = offset + (all.whole ? solved.bound : std::min(solved.bound, dual_of(all.relaxed, most).bound));
  out.proved = solved.proved && (all.whole || reached <= out.bound);
  if (out.proved) out.bound = reached;
  out.gap = std::max(0.0, reached - out.bound);
  return out;
}

ChoiceFront choice_front(const ChoiceProblem& problem, size_t most, const ChoiceOptions& options) {
  problem.require_whole();
  const std::vector<ChoicePart> parts = parts_of(problem, ChoiceCost::bytes, options.assignments);
  const Joined all = joined(parts, false);
  Points front(1);
  front[0].cost = problem.fixed_bytes;
  bool exact = all.whole && !options.fast;
  size_t work = 0;
  for (size_t p = 0; exact && p < all.fronts.size(); ++p) {
    work += front.size() * all.fronts[p].size();
    exact = work <= options.states;
    if (!exact) break;
    Points next;
    for (const PartPoint& a : front)
      for (const PartPoint& b : all.fronts[p]) next.push_back({a.cost + b.cost, a.value + b.value, 0});
    front = undominated(std::move(next));
  }
  if (!exact) {
    PartPoint at{problem.fixed_bytes + least_cost(all.fronts), 0, 0};
    for (const Points& p : all.fronts) at.value += p.front().value;
    front = {at};
    for (const Step& s : steps_of(all.fronts)) {
      at.cost += s.cost;
      at.value -= s.gain;
      front.push_back(at);
    }
  }
  ChoiceFront out;
  out.exact = exact;
  const double weights = problem.weights();
  const size_t count = std::min(std::max<size_t>(most, 2), front.size());
  for (size_t i = 0; i < count; ++i) {
    const PartPoint& p = front[count == 1 ? 0 : i * (front.size() - 1) / (count - 1)];
    FrontPoint& to = out.points.emplace_back();
    to.bytes = p.cost;
    to.bits = weights > 0 ? 8 * p.cost / weights : 0;
    to.score = p.value;
  }
  return out;
}

}  // namespace lumen::model::compress

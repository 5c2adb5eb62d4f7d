#include "model/compress/choose/parts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

namespace lumen::model::compress {
namespace {

constexpr int64_t kMostUnits = int64_t{1} << 22;    // distinct costs of a part that fit a table
constexpr size_t kMostCollected = size_t{1} << 20;  // points collected before dominated ones are removed
constexpr double kRoomy = 16;                       // entries of such a table per assignment, at most
constexpr int kPrices = 48;                         // of cost, for the heuristic search

PartPoint point_of(int64_t cost, double value, uint64_t code) {
  PartPoint out;
  out.cost = cost;
  out.value = value;
  out.code = code;
  return out;
}

// The items of one part as tables.
struct Tables {
  std::vector<std::vector<int64_t>> costs;  // [item][candidate]
  std::vector<std::vector<double>> scores;
  std::vector<std::vector<std::vector<double>>> pairs;  // [i][j]: [candidates of i, of j], i != j; empty where zero

  size_t size() const { return costs.size(); }
  size_t count(size_t i) const { return costs[i].size(); }
};

Tables tables_of(const ChoiceBlock& block, const std::vector<size_t>& items, ChoiceCost cost) {
  Tables t;
  std::vector<size_t> place(block.items.size(), SIZE_MAX);
  for (const size_t i : items) {
    place[i] = t.size();
    t.costs.emplace_back();
    t.scores.emplace_back();
    for (const ChoiceCandidate& c : block.items[i].candidates) {
      t.costs.back().push_back(cost == ChoiceCost::bytes ? c.bytes : nanoseconds(c.ms));
      t.scores.back().push_back(c.score);
    }
  }
  t.pairs.assign(t.size(), std::vector<std::vector<double>>(t.size()));
  for (const PairTerms& pair : block.pairs) {
    const size_t a = place[pair.a], b = place[pair.b];
    if (a == SIZE_MAX || b == SIZE_MAX) continue;
    std::vector<double>& other = t.pairs[b][a];
    t.pairs[a][b] = pair.terms;
    other.resize(pair.terms.size());
    for (size_t x = 0; x < t.count(a); ++x)
      for (size_t y = 0; y < t.count(b); ++y) other[y * t.count(a) + x] = pair.terms[x * t.count(b) + y];
  }
  return t;
}

// Collects assignments one by one and keeps those on the Pareto front. Where costs are few multiples of a unit, a table
// keeps the best of each cost.
class Collector {
 public:
  Collector(const Tables& t, double assignments) {
    int64_t range = 0;
    for (const auto& costs : t.costs) {
      const auto [least, most] = std::minmax_element(costs.begin(), costs.end());
      least_ += *least;
      range += *most - *least;
      for (const int64_t c : costs) unit_ = std::gcd(unit_, c - *least);
    }
    unit_ = std::max<int64_t>(unit_, 1);
    const int64_t units = range / unit_ + 1;
    if (units <= kMostUnits && units <= kRoomy * assignments) table_.resize(units);
  }
  void take(int64_t cost, double value, uint64_t code) {
    if (!table_.empty()) {
      Entry& e = table_[(cost - least_) / unit_];
      if (value < e.value) e = {value, code};
      return;
    }
    points_.push_back(point_of(cost, value, code));
    if (points_.size() < kMostCollected + kept_) return;
    points_ = undominated(std::move(points_));
    kept_ = points_.size();
  }
  std::vector<PartPoint> finish() {
    int64_t cost = least_;
    for (const Entry& e : table_) {
      if (e.value < std::numeric_limits<double>::infinity()) points_.push_back(point_of(cost, e.value, e.code));
      cost += unit_;
    }
    return undominated(std::move(points_));
  }

 private:
  struct Entry {
    double value = std::numeric_limits<double>::infinity();
    uint64_t code = 0;
  };
  int64_t least_ = 0, unit_ = 0;
  size_t kept_ = 0;
  std::vector<Entry> table_;
  std::vector<PartPoint> points_;
};

// All assignments; the later items' scores include pair terms with the earlier ones' candidates.
class Enumeration {
 public:
  Enumeration(const Tables& t, Collector& out) : t_(t), out_(out), given_(t.size() + 1, t.scores) {
    uint64_t weight = 1;
    for (size_t i = 0; i < t.size(); ++i) {
      digit_.push_back(weight);
      weight *= t.count(i);
    }
    descend(0, 0, 0, 0);
  }

 private:
  void descend(size_t depth, int64_t cost, double value, uint64_t code) {
    const std::vector<double>& scores = given_[depth][depth];
    const bool last = depth + 1 == t_.size();
    for (size_t c = 0; c < t_.count(depth); ++c) {
      const int64_t its_cost = cost + t_.costs[depth][c];
      const double its_value = value + scores[c];
      const uint64_t its_code = code + c * digit_[depth];
      if (last) {
        out_.take(its_cost, its_value, its_code);
        continue;
      }
      for (size_t j = depth + 1; j < t_.size(); ++j) {
        const std::vector<double>& terms = t_.pairs[depth][j];
        std::vector<double>& next = given_[depth + 1][j];
        next = given_[depth][j];
        if (terms.empty()) continue;
        for (size_t y = 0; y < next.size(); ++y) next[y] += terms[c * next.size() + y];
      }
      descend(depth + 1, its_cost, its_value, its_code);
    }
  }

  const Tables& t_;
  Collector& out_;
  std::vector<uint64_t> digit_;
  std::vector<std::vector<std::vector<double>>> given_;  // [depth][item][candidate]
};

// Good assignments of a part that is too large to enumerate: for each of many prices of cost, coordinate descent on
// score + price * cost over single items, then over pairs of coupled items. All neighbours of an accepted assignment
// are collected, too.
class Search {
 public:
  Search(const Tables& t, Collector& out, std::vector<std::vector<size_t>>& seen) : t_(t), out_(out), seen_(seen) {
    double least = 0, most = 0;  // of scores, and of costs
    for (size_t i = 0; i < t.size(); ++i) {
      const auto [low, high] = std::minmax_element(t.scores[i].begin(), t.scores[i].end());
      const auto [few, many] = std::minmax_element(t.costs[i].begin(), t.costs[i].end());
      least += *high - *low;
      most += (*many - *few);
      for (size_t j = 0; j < i; ++j)
        for (const double x : t.pairs[i][j]) least += std::abs(x) / (t.count(i) * t.count(j));
    }
    const double middle = most > 0 && least > 0 ? least / most : 1;
    std::vector<size_t> picks(t.size(), 0);
    for (size_t i = 0; i < t.size(); ++i) picks[i] = cheapest(i);
    look_around(picks);
    for (int p = 0; p < kPrices; ++p) {  // from cost alone to nearly score alone
      price_ = middle * std::pow(10.0, 4 - 8.0 * p / (kPrices - 1));
      settle(picks);
      look_around(picks);
    }
    price_ = 0;
    settle(picks);
    look_around(picks);
  }

 private:
  size_t cheapest(size_t i) const {
    return std::min_element(t_.costs[i].begin(), t_.costs[i].end()) - t_.costs[i].begin();
  }
  // Item i's score with candidate c, plus its pair terms except with those in `without`.
  double score(const std::vector<size_t>& picks, size_t i, size_t c, size_t without) const {
    double out = t_.scores[i][c];
    for (size_t j = 0; j < t_.size(); ++j)
      if (j != i && j != without && !t_.pairs[i][j].empty()) out += t_.pairs[i][j][c * t_.count(j) + picks[j]];
    return out;
  }
  double priced(const std::vector<size_t>& picks, size_t i, size_t c, size_t without) const {
    return score(picks, i, c, without) + price_ * t_.costs[i][c];
  }
  bool improve_one(std::vector<size_t>& picks, size_t i) const {
    size_t best = picks[i];
    double least = priced(picks, i, best, i);
    for (size_t c = 0; c < t_.count(i); ++c) {
      const double x = priced(picks, i, c, i);
      if (x < least - 1e-12 * std::abs(least)) {
        least = x;
        best = c;
      }
    }
    const bool changed = best != picks[i];
    picks[i] = best;
    return changed;
  }
  bool improve_pair(std::vector<size_t>& picks, size_t i, size_t j) const {
    const std::vector<double>& terms = t_.pairs[i][j];
    if (terms.empty()) return false;
    std::vector<double> second(t_.count(j));
    for (size_t y = 0; y < second.size(); ++y) second[y] = priced(picks, j, y, i);
    std::pair<size_t, size_t> best(picks[i], picks[j]);
    double least = priced(picks, i, picks[i], j) + second[picks[j]] + terms[picks[i] * t_.count(j) + picks[j]];
    const double slack = 1e-12 * std::abs(least);
    for (size_t x = 0; x < t_.count(i); ++x) {
      const double first = priced(picks, i, x, j);
      for (size_t y = 0; y < second.size(); ++y) {
        const double sum = first + second[y] + terms[x * t_.count(j) + y];
        if (sum >= least - slack) continue;
        least = sum;
        best = {x, y};
      }
    }
    const bool changed = best != std::pair(picks[i], picks[j]);
    std::tie(picks[i], picks[j]) = best;
    return changed;
  }
  void settle(std::vector<size_t>& picks) const {
    for (int round = 0; round < 100; ++round) {
      bool changed = false;
      for (size_t i = 0; i < t_.size(); ++i) changed |= improve_one(picks, i);
      for (size_t i = 0; i < t_.size(); ++i)
        for (size_t j = i + 1; j < t_.size(); ++j) changed |= improve_pair(picks, i, j);
      if (!changed) return;
    }
  }
  void look_around(const std::vector<size_t>& picks) {
    int64_t cost = 0;
    double value = 0;
    for (size_t i = 0; i < t_.size(); ++i) {
      cost += t_.costs[i][picks[i]];
      value += t_.scores[i][picks[i]];
      for (size_t j = 0; j < i; ++j)
        if (!t_.pairs[i][j].empty()) value += t_.pairs[i][j][picks[i] * t_.count(j) + picks[j]];
    }
    std::vector<size_t> other = picks;
    for (size_t i = 0; i < t_.size(); ++i) {
      const double own = score(picks, i, picks[i], i);
      for (size_t c = 0; c < t_.count(i); ++c) {
        other[i] = c;
        out_.take(cost + t_.costs[i][c] - t_.costs[i][picks[i]], value + score(picks, i, c, i) - own, seen_.size());
        seen_.push_back(other);
      }
      other[i] = picks[i];
    }
  }

  const Tables& t_;
  Collector& out_;
  std::vector<std::vector<size_t>>& seen_;
  double price_ = 0;
};

// Each item separately, plus half of the least term of each of its pairs.
std::vector<std::vector<PartPoint>> relaxation(const Tables& t) {
  std::vector<std::vector<PartPoint>> out;
  for (size_t i = 0; i < t.size(); ++i) {
    std::vector<PartPoint> points;
    for (size_t c = 0; c < t.count(i); ++c) {
      double value = t.scores[i][c];
      for (size_t j = 0; j < t.size(); ++j) {
        if (t.pairs[i][j].empty()) continue;
        const auto row = t.pairs[i][j].begin() + c * t.count(j);
        value += *std::min_element(row, row + t.count(j)) / 2;
      }
      points.push_back(point_of(t.costs[i][c], value, c));
    }
    out.push_back(undominated(std::move(points)));
  }
  return out;
}

// Connected components of a block's items, in the order of their first item.
std::vector<std::vector<size_t>> connected(const ChoiceBlock& block) {
  std::vector<size_t> root(block.items.size());
  std::iota(root.begin(), root.end(), 0);
  const auto find = [&](size_t i) {
    while (root[i] != i) i = root[i] = root[root[i]];
    return i;
  };
  for (const PairTerms& pair : block.pairs)
    if (std::any_of(pair.terms.begin(), pair.terms.end(), [](double x) { return x != 0; })) {
      const auto [low, high] = std::minmax({find(pair.a), find(pair.b)});
      root[high] = low;
    }
  std::vector<std::vector<size_t>> out;
  std::vector<size_t> part(block.items.size(), SIZE_MAX);
  for (size_t i = 0; i < block.items.size(); ++i) {
    size_t& its = part[find(i)];
    if (its == SIZE_MAX) {
      its = out.size();
      out.emplace_back();
    }
    out[its].push_back(i);
  }
  return out;
}

}  // namespace

int64_t nanoseconds(double ms) {
  return std::ceil(ms * 1e6 - 1e-6);
}

std::vector<PartPoint> undominated(std::vector<PartPoint> points) {
  std::sort(points.begin(), points.end(), [](const PartPoint& a, const PartPoint& b) {
    return std::tie(a.cost, a.value, a.code) < std::tie(b.cost, b.value, b.code);
  });
  std::vector<PartPoint> out;
  for (const PartPoint& p : points)
    if (out.empty() || p.value < out.back().value) out.push_back(p);
  return out;
}

void ChoicePart::write(const ChoiceBlock& of, uint64_t code, std::vector<size_t>& picks) const {
  if (!whole) {
    for (size_t k = 0; k < items.size(); ++k) picks[items[k]] = seen[code][k];
    return;
  }
  for (const size_t i : items) {
    const size_t count = of.items[i].candidates.size();
    picks[i] = code % count;
    code /= count;
  }
}

std::vector<ChoicePart> parts_of(const ChoiceProblem& problem, ChoiceCost cost, int64_t most) {
  std::vector<ChoicePart> out;
  for (size_t b = 0; b < problem.blocks.size(); ++b) {
    const ChoiceBlock& block = problem.blocks[b];
    for (std::vector<size_t>& items : connected(block)) {
      ChoicePart part;
      part.block = b;
      const Tables t = tables_of(block, items, cost);
      part.items = std::move(items);
      double assignments = 1;
      for (size_t i = 0; i < t.size(); ++i) assignments *= t.count(i);
      Collector found(t, assignments);
      part.whole = assignments <= most;
      if (part.whole) {
        Enumeration(t, found);
      } else {
        Search(t, found, part.seen);
        part.relaxed = relaxation(t);
      }
      part.points = found.finish();
      out.push_back(std::move(part));
    }
  }
  return out;
}

}  // namespace lumen::model::compress

// Planes: sorts the elements of a unit by the position of their bits in a byte, then by byte.
#include "kernel/synth/order/lane_order.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "kernel/synth/unpack/field.h"

namespace lumen::synth {
namespace {

constexpr int64_t kMostElements = 1024;  // of a unit: straight code
constexpr int64_t kShortestRun = 8;      // contiguous bytes that are worth an order of their own

// The field with a code of at most eight bits for each element of a block.
const Field* field_of_codes(const Format& f) {
  const Field* found = nullptr;
  for (const Field& field : f.fields)
    if (field.level == Level::block && field.count == f.block && field.type.bits <= 8 && f.block > 1) {
      if (found) return nullptr;
      found = &field;
    }
  return found;
}

// Bit of the widest piece of an element's code in its block; nullopt if it crosses bytes.
std::optional<int64_t> bit_of(const Field& field, int64_t element) {
  const LayoutPiece* widest = nullptr;
  for (const LayoutPiece& piece : field.layout.pieces)
    if (holds(piece, element) && (!widest || piece.bits > widest->bits)) widest = &piece;
  const int64_t bit = widest->bit_of(element);
  if (bit % 8 + widest->bits > 8) return std::nullopt;
  return bit;
}

// Vectors of a unit of `blocks` blocks; nullopt if the layout has no planes of whole vectors.
std::optional<LaneOrder> planes(const Format& f, const Field& field, int64_t blocks, int lanes, int run,
                                int64_t group) {
  struct At {
    int64_t byte, element;
  };
  std::map<int64_t, std::vector<At>> by_shift;
  for (int64_t e = 0; e < blocks * f.block; ++e) {
    const auto bit = bit_of(field, e % f.block);
    if (!bit) return std::nullopt;
    by_shift[*bit % 8].push_back({e / f.block * f.block_bytes + *bit / 8, e});
  }
  const size_t count = by_shift.begin()->second.size();
  if (count % lanes != 0) return std::nullopt;
  for (auto& [shift, list] : by_shift) {
    if (list.size() != count) return std::nullopt;
    std::ranges::sort(list, {}, &At::byte);
    for (size_t i = 0; i < count; ++i) {
      if (i % kShortestRun != 0 && list[i].byte != list[i - 1].byte + 1) return std::nullopt;
      const size_t first = i / run * run;
      if (list[i].element / group != list[first].element / group) return std::nullopt;
    }
  }
  LaneOrder order{blocks * f.block, {}};
  for (size_t first = 0; first < count; first += lanes)
    for (const auto& [shift, list] : by_shift) {
      order.vectors.emplace_back();
      for (size_t i = first; i < first + lanes; ++i) order.vectors.back().push_back(list[i].element);
    }
  return order;
}

}  // namespace

LaneOrder natural_order(int64_t elements, int lanes) {
  LaneOrder order{elements, {}};
  for (int64_t first = 0; first < elements; first += lanes) {
    order.vectors.emplace_back();
    for (int64_t e = first; e < first + lanes; ++e) order.vectors.back().push_back(e < elements ? e : -1);
  }
  return order;
}

RowOrder choose_order(const Format& f, int64_t k, int lanes, int run, int64_t group, int64_t most_groups) {
  const Field* codes = field_of_codes(f);
  // The smallest unit that has planes, else whole blocks and whole vectors.
  LaneOrder best;
  int64_t base = 0;
  for (int64_t blocks = 1; codes && blocks * f.block <= kMostElements && base == 0; ++blocks) {
    if (blocks * f.block % kActivationGroup != 0) continue;
    if (auto order = planes(f, *codes, blocks, lanes, run, group)) {
      base = blocks * f.block;
      best = std::move(*order);
    }
  }
  const bool has_planes = base != 0;
  if (!has_planes) {
    base = std::lcm(std::lcm(f.block, static_cast<int64_t>(lanes)), kActivationGroup);
    if (base > kMostElements) base = std::lcm(f.block, kActivationGroup);
    best = natural_order(base, lanes);
  }
  // The unit grows while rows are whole units: more groups at once fill the vectors of scales.
  int64_t unit = base;
  while (2 * unit <= k && k % (2 * unit) == 0 && 2 * unit / group <= most_groups && 2 * unit <= kMostElements)
    unit *= 2;
  if (unit != base)
    best = has_planes ? *planes(f, *codes, unit / f.block, lanes, run, group) : natural_order(unit, lanes);
  return {std::move(best), natural_order(k % unit, lanes), k / unit};
}

std::vector<int> lanes_after(const Trade& trade, int lanes, bool second) {
  std::vector<int> out;
  const int half = trade.run / 2;
  for (int lane = 0; lane < lanes; ++lane) {
    const bool is_upper = lane % trade.run >= half;  // comes from the second vector
    out.push_back(is_upper ? lanes + lane - (second ? 0 : half) : lane + (second ? half : 0));
  }
  return out;
}

TradedOrder with_groups_apart(const LaneOrder& order, int k, int64_t group) {
  struct Chain {
    std::vector<size_t> vectors;
    size_t number = 0;
    int run = 1;  // words that lie in one group, for every aligned run of so many
  };
  TradedOrder out{order, order, {}, {}, {}, {}};
  std::vector<std::vector<int64_t>>& vectors = out.order.vectors;
  const int lanes = vectors.empty() ? 0 : std::ssize(vectors[0]) / k;
  const auto group_of = [&](size_t v, int lane) { return vectors[v][lane * k] / group; };
  const auto run_of = [&](size_t v) {
    int run = 1;
    const auto are_one = [&](int words) {
      for (int lane = 0; lane < lanes; ++lane)
        if (group_of(v, lane) != group_of(v, lane / words * words)) return false;
      return true;
    };
    while (2 * run <= lanes && lanes % (2 * run) == 0 && are_one(2 * run)) run *= 2;
    return run;
  };
  const auto are_alike = [&](size_t v, size_t w) {
    for (int lane = 0; lane < lanes; ++lane)
      if (group_of(v, lane) != group_of(w, lane)) return false;
    return true;
  };
  std::vector<Chain> chains;
  for (size_t v = 0; v < vectors.size(); ++v) {
    if (chains.empty() || !are_alike(chains.back().vectors[0], v)) chains.push_back({{}, chains.size(), run_of(v)});
    chains.back().vectors.push_back(v);
  }
  for (const Chain& chain : chains) out.chains.push_back(chain.vectors);
  const auto trade = [&](size_t first, size_t second, int run) {
    const Trade t{first, second, run};
    std::vector<int64_t> both = vectors[first];
    both.insert(both.end(), vectors[second].begin(), vectors[second].end());
    for (const size_t v : {first, second}) {
      const std::vector<int> words = lanes_after(t, lanes, v == second);
      for (int lane = 0; lane < lanes; ++lane)
        std::copy_n(both.begin() + int64_t{words[lane]} * k, k, vectors[v].begin() + int64_t{lane} * k);
    }
    out.trades.push_back(t);
  };
  for (bool traded = true; traded;) {
    traded = false;
    std::vector<Chain> next;
    for (size_t c = 0; c < chains.size(); ++c) {
      Chain& one = chains[c];
      if (c + 1 == chains.size() || one.run < 2 || one.run != chains[c + 1].run ||
          one.vectors.size() != chains[c + 1].vectors.size()) {
        next.push_back(one);
        continue;
      }
      const Chain& other = chains[++c];
      out.joins.push_back({one.number, other.number, one.run});
      for (size_t i = 0; i < other.vectors.size(); ++i) trade(one.vectors[i], other.vectors[i], one.run);
      one.vectors.insert(one.vectors.end(), other.vectors.begin(), other.vectors.end());
      one.run /= 2;
      next.push_back(one);
      traded = true;
    }
    chains = std::move(next);
  }
  const std::vector<std::vector<int64_t>> traded = vectors;
  for (const Chain& chain : chains) out.from.insert(out.from.end(), chain.vectors.begin(), chain.vectors.end());
  for (size_t v = 0; v < out.from.size(); ++v) vectors[v] = traded[out.from[v]];
  return out;
}

}  // namespace lumen::synth

// See fragment_order.h. Codes that are taken from memory in one plane of their bytes lie beside each other.
#include "kernel/synth/order/fragment_order.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace lumen::synth {
namespace {

constexpr int64_t kFarthest = 64;  // bytes from lane to lane

struct Part {
  int64_t bit = 0;
  int bits = 0, value_bit = 0;
  auto operator<=>(const Part&) const = default;
};
using Place = std::vector<Part>;  // of a code

Place place_of(const Format& f, const Field& field, int64_t element) {
  Place out;
  const int64_t inside = element % f.block, before = element / f.block * f.block_bytes * 8;
  for (const LayoutPiece& piece : field.layout.pieces)
    if (inside >= piece.first && inside < piece.first + piece.count)
      out.push_back({before + piece.bit_of(inside), piece.bits, piece.value_bit});
  std::sort(out.begin(), out.end());
  return out;
}

Place moved(Place p, int64_t bytes) {
  for (Part& part : p) part.bit += 8 * bytes;
  return p;
}

const Part& widest(const Place& p) {
  return *std::max_element(p.begin(), p.end(), [](const Part& x, const Part& y) { return x.bits < y.bits; });
}

// Each beside one that stands at the same place some whole bytes further, so that one
// operation takes both out of a word; by the shortest way, and not the next byte, whose bits are in the same half.
void pair_places(std::vector<int64_t>& elements, const std::vector<Place>& places) {
  const auto bit = [&](int64_t e) { return places[e].front().bit; };
  std::map<int64_t, int64_t> at;
  for (const int64_t e : elements) {
    if (places[e].size() != 1) return;
    at[bit(e)] = e;
  }
  for (int64_t bytes = 2; bytes <= kFarthest; ++bytes) {
    std::vector<int64_t> out;
    std::map<int64_t, bool> taken;
    for (const auto& [from, e] : at) {
      if (taken[e]) continue;
      const auto it = at.find(from + 8 * bytes);
      if (it == at.end() || taken[it->second]) break;
      taken[it->second] = true;
      out.insert(out.end(), {e, it->second});
    }
    if (out.size() != elements.size()) continue;
    elements = std::move(out);
    return;
  }
}

// By plane where codes stay in their bytes, else as they lie.
void sort_places(std::vector<int64_t>& elements, const std::vector<Place>& places, bool planes) {
  const auto part = [&](int64_t e) -> const Part& { return widest(places[e]); };
  const bool within =
      std::all_of(elements.begin(), elements.end(), [&](int64_t e) { return part(e).bit % 8 + part(e).bits <= 8; });
  planes = planes && within;
  std::sort(elements.begin(), elements.end(), [&](int64_t x, int64_t y) {
    const int64_t a = part(x).bit, b = part(y).bit;
    return planes && a % 8 != b % 8 ? a % 8 < b % 8 : a < b;
  });
}

}  // namespace

std::optional<FragmentOrder> order_of_codes(const Format& f, int field, int64_t unit, int64_t group, int64_t lanes,
                                            int64_t multiple, bool planes, bool in_pairs) {
  const int64_t own = group / lanes;
  if (group % (lanes * multiple) != 0 || unit % group != 0) return std::nullopt;
  std::vector<Place> places;
  std::map<Place, int64_t> at;
  for (int64_t e = 0; e < unit; ++e) {
    places.push_back(place_of(f, f.fields[field], e));
    if (places.back().empty()) return std::nullopt;
    at[places.back()] = e;
  }
  for (int64_t bytes = lanes == 1 ? 1 : kFarthest; bytes > 0; --bytes) {
    FragmentOrder out{unit, group, {}, 0, lanes == 1 ? 0 : bytes, {}};
    bool found = true;
    for (int64_t first = 0; first < unit && found; first += group) {
      std::vector<int64_t> left(group), mine;
      std::iota(left.begin(), left.end(), first);
      std::sort(left.begin(), left.end(), [&](int64_t x, int64_t y) { return places[x] < places[y]; });
      std::map<int64_t, bool> taken;
      for (const int64_t e : left) {
        if (taken[e]) continue;
        for (int64_t lane = 0; lane < lanes && found; ++lane) {
          const auto it = at.find(moved(places[e], lane * bytes));
          found = it != at.end() && it->second / group == first / group && !taken[it->second];
          if (!found) break;
          taken[it->second] = true;
          if (lane == 1 && out.lane_elements == 0) out.lane_elements = it->second - e;
          found = it->second == e + lane * out.lane_elements;
        }
        if (!found) break;
        mine.push_back(e);
      }
      if (!found || std::ssize(mine) != own) {
        found = false;
        break;
      }
      sort_places(mine, places, planes);
      if (in_pairs) pair_places(mine, places);
      out.elements.insert(out.elements.end(), mine.begin(), mine.end());
    }
    if (!found) continue;
    const auto byte = [&](int64_t g) { return widest(places[out.elements[g * own]]).bit / 8; };
    for (int64_t g = 0; g < unit / group; ++g) out.sequence.push_back(g);
    std::stable_sort(out.sequence.begin(), out.sequence.end(), [&](int64_t x, int64_t y) { return byte(x) < byte(y); });
    return out;
  }
  return std::nullopt;
}

FragmentOrder order_of_blocks(const Format& f, int64_t own, int64_t lanes) {
  FragmentOrder out{own * lanes, own * lanes, {}, own, own / f.block * f.block_bytes, {0}};
  for (int64_t e = 0; e < own; ++e) out.elements.push_back(e);
  return out;
}

}  // namespace lumen::synth

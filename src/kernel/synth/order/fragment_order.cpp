// See fragment_order.h. Codes that are extracted from one plane of their bytes are adjacent.
#include "kernel/synth/order/fragment_order.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "kernel/synth/unpack/field.h"

namespace lumen::synth {
namespace {

constexpr int64_t kFarthest = 64;  // bytes between lanes

using Place = std::vector<CodePart>;  // of a code

Place place_of(const Format& f, const Field& field, int64_t element) {
  Place out = parts_of(field, place_in_blocks(f, element));
  std::ranges::sort(out);
  return out;
}

Place moved(Place p, int64_t bytes) {
  for (CodePart& part : p) part.bit += 8 * bytes;
  return p;
}

const CodePart& widest(const Place& p) {
  return *std::ranges::max_element(p, {}, &CodePart::bits);
}

// Puts each element next to one at the same bit of another byte, so that one operation extracts both from a word; the
// nearest such byte, but not the next one, whose bits are in the same half.
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

// By plane if no code crosses bytes, else by position.
void sort_places(std::vector<int64_t>& elements, const std::vector<Place>& places, bool planes) {
  const auto part = [&](int64_t e) -> const CodePart& { return widest(places[e]); };
  const bool within = std::ranges::all_of(elements, [&](int64_t e) { return part(e).bit % 8 + part(e).bits <= 8; });
  std::ranges::sort(elements, {}, [&](int64_t e) {
    const int64_t bit = part(e).bit;
    return std::pair(planes && within ? bit % 8 : 0, bit);
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
      std::ranges::sort(left, {}, [&](int64_t e) { return places[e]; });
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
      found = found && std::ssize(mine) == own;
      if (!found) break;
      sort_places(mine, places, planes);
      if (in_pairs) pair_places(mine, places);
      out.elements.insert(out.elements.end(), mine.begin(), mine.end());
    }
    if (!found) continue;
    const auto byte = [&](int64_t g) { return widest(places[out.elements[g * own]]).bit / 8; };
    for (int64_t g = 0; g < unit / group; ++g) out.sequence.push_back(g);
    std::ranges::stable_sort(out.sequence, {}, byte);
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

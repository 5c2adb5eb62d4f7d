// Changes of a JSON document that keep it one: members move, values are exchanged, copied and changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

namespace json_changes {

using nlohmann::ordered_json;

struct Place {
  ordered_json* parent;  // null: the root
  size_t index;          // within the parent
};

inline ordered_json& at(ordered_json& root, const Place& place) {
  return place.parent ? *std::next(place.parent->begin(), static_cast<ptrdiff_t>(place.index)) : root;
}

inline std::string name_of(const Place& place) {
  return std::next(place.parent->begin(), static_cast<ptrdiff_t>(place.index)).key();
}

inline void collect(ordered_json& node, std::vector<Place>& out) {
  if (!node.is_structured()) return;
  size_t i = 0;
  for (ordered_json& child : node) {
    out.push_back({&node, i++});
    collect(child, out);
  }
}

template <typename T>
const T& any(const std::vector<T>& list, std::mt19937& chance) {
  return list[chance() % list.size()];
}

inline void change(ordered_json& node, const ordered_json& other, std::mt19937& chance) {
  if (node.is_boolean()) {
    node = !node.get<bool>();
  } else if (node.is_number_integer()) {
    constexpr int64_t kNumbers[] = {0, 1, -1, 2, 7, 64, 255, 256, 65536, int64_t{1} << 31, INT64_MAX, INT64_MIN};
    const uint64_t n = node.get<uint64_t>(), step = chance() % 4;
    if (step == 0) {
      node = kNumbers[chance() % std::size(kNumbers)];
    } else {
      node = static_cast<int64_t>(step == 1 ? n + 1 : step == 2 ? n - 1 : n + chance() % 64);
    }
  } else if (node.is_string() && other.is_string()) {
    const std::string mine = node.get<std::string>(), more = other.get<std::string>();
    node = chance() % 3 == 0 ? more : chance() % 2 == 0 ? mine + more : std::string();
  } else {
    node = other;
  }
}

// One mutation of the document.
inline void mutate(ordered_json& root, std::mt19937& chance) {
  std::vector<Place> places;
  collect(root, places);
  if (places.empty()) return;
  const Place place = any(places, chance);
  const ordered_json other = at(root, any(places, chance));
  ordered_json& node = at(root, place);
  switch (chance() % 6) {
    case 0:
      node = other;
      break;
    case 1:
      if (place.parent->is_array()) {
        place.parent->erase(place.index);
      } else {
        place.parent->erase(name_of(place));
      }
      break;
    case 2:
      if (node.is_array()) {
        node.push_back(node.empty() || chance() % 2 == 0 ? other : node[chance() % node.size()]);
      } else if (node.is_object()) {
        std::vector<std::string> names;
        for (const Place& p : places) {
          if (p.parent->is_object()) names.push_back(name_of(p));
          if (const ordered_json& value = at(root, p); value.is_string()) names.push_back(value.get<std::string>());
        }
        if (!names.empty()) node[any(names, chance)] = other;
      } else {
        change(node, other, chance);
      }
      break;
    default:
      change(node, other, chance);
  }
}

}  // namespace json_changes

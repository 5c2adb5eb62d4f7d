#include "model/compress/prepare/rounding_method.h"

#include <algorithm>
#include <sstream>

#include "base/error.h"

namespace lumen::model::compress {

std::string RoundingMethod::text() const {
  std::string out;
  for (const Preparation* p : preparations) out += fmt::format("{},", p->name());
  return out + std::string(strategy->name());
}

graph::TapKinds RoundingMethod::observes() const {
  graph::TapKinds all = strategy->observes();
  for (const Preparation* p : preparations) all |= p->observes();
  return all;
}

RoundingMethod parse_method(const std::string& text) {
  RoundingMethod out;
  std::istringstream names_of(text + (text.empty() ? "," : ""));
  for (std::string name; std::getline(names_of, name, ',');) {
    const auto found = std::ranges::find_if(preparations(), [&](const Preparation* p) { return p->name() == name; });
    if (out.strategy) throw usage_error("'{}': '{}' comes last, after the preparations", text, out.strategy->name());
    if (found == preparations().end()) {
      const auto strategy = std::ranges::find_if(strategies(), [&](const Strategy* s) { return s->name() == name; });
      if (strategy == strategies().end()) {
        std::string names;
        for (const Preparation* p : preparations()) names += fmt::format("{}, ", p->name());
        for (const Strategy* s : strategies())
          names += fmt::format("{}{}", s->name(), s == strategies().back() ? "" : ", ");
        throw usage_error("no strategy is called '{}'; there are {}", name, names);
      }
      out.strategy = *strategy;
    } else {
      if (std::ranges::find(out.preparations, *found) != out.preparations.end())
        throw usage_error("'{}': '{}' appears twice", text, name);
      out.preparations.push_back(*found);
    }
  }
  if (!out.strategy) out.strategy = &find_strategy(std::string(out.preparations.back()->followed_by()));
  return out;
}

bool RoundingMethod::learns_from_text() const {
  const graph::TapKinds k = observes();
  return strategy->by_blocks() || k.squares || k.magnitudes || k.largest || k.gram || k.rows || k.cross || k.spread ||
         k.weighed;
}

std::string list_methods() {
  std::string out;
  for (const Preparation* p : preparations()) out += fmt::format("; {}: {}", p->name(), p->about());
  for (const Strategy* s : strategies()) out += fmt::format("; {}: {}", s->name(), s->about());
  return out;
}

}  // namespace lumen::model::compress

#include "model/infer/sample/logit_row.h"

#include <algorithm>

#include "base/check.h"
#include "model/infer/sample/race.h"

namespace lumen::model::infer {

double Narrowed::at(text::TokenId id) const {
  if (const auto found = asked.find(id); found != asked.end()) return found->second;
  for (const Group& group : front) {
    const int64_t i = id - group.number * Race::kGroup;
    if (i >= 0 && i < std::ssize(group.logits)) return group.logits[i];
  }
  const auto found = std::find_if(best.begin(), best.end(), [&](const Candidate& c) { return c.id == id; });
  if (found == best.end()) throw Undecided();
  return found->logit;
}

std::span<const float> LogitRow::whole() const {
  if (whole_.empty()) {
    LUMEN_CHECK(fetch_);
    whole_ = fetch_();
  }
  return whole_;
}

}  // namespace lumen::model::infer

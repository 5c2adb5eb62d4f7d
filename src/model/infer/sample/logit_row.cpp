#include "model/infer/sample/logit_row.h"

#include <algorithm>

#include "base/check.h"

namespace lumen::model {

double Narrowed::at(TokenId id) const {
  if (const auto found = asked.find(id); found != asked.end()) return found->second;
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

}  // namespace lumen::model

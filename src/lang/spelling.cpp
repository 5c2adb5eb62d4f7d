// Edit distance over short words; see spelling.h.
#include "lang/spelling.h"

#include <fmt/format.h>

#include <algorithm>

namespace lumen::lang {
namespace {

size_t distance(std::string_view a, std::string_view b) {
  const size_t columns = b.size() + 1;
  std::vector<size_t> d((a.size() + 1) * columns);
  const auto at = [&](size_t i, size_t j) -> size_t& { return d[i * columns + j]; };
  for (size_t i = 0; i <= a.size(); ++i) at(i, 0) = i;
  for (size_t j = 0; j <= b.size(); ++j) at(0, j) = j;
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = at(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1);
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
    }
  return at(a.size(), b.size());
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr size_t kLongest = 64;  // longer words are not slips of the keyboard
  if (word.size() > kLongest) return {};
  std::string best;
  size_t limit = (word.size() < 4 ? 1 : word.size() < 9 ? 2 : 3) + 1;
  for (const std::string& c : candidates) {
    if (c.empty() || c.size() > kLongest || c == word) continue;
    const size_t d = distance(word, c);
    // A one-letter word is near to every other one: no guess.
    if (d < limit && d < std::max(word.size(), c.size())) {
      limit = d;
      best = c;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates, std::string otherwise) {
  const std::string best = nearest(word, candidates);
  return best.empty() ? std::move(otherwise) : fmt::format("did you mean '{}'?", best);
}

}  // namespace lumen::lang

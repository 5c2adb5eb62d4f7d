#include "base/messages/spelling.h"

#include <fmt/format.h>

#include <algorithm>

namespace lumen {
namespace {

constexpr size_t kLongest = 64;  // longer words are not typing errors

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
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

std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.size() > kLongest) return {};
  std::string best;
  size_t limit = (word.size() < 4 ? 1 : word.size() < 9 ? 2 : 3) + 1;
  for (const std::string& c : candidates) {
    if (c.empty() || c.size() > kLongest || c == word) continue;
    const size_t d = edit_distance(word, c);
    // A one-letter word is one edit away from every other one: no suggestion.
    if (d < limit && d < std::max(word.size(), c.size())) {
      limit = d;
      best = c;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates, std::string otherwise) {
  const std::string best = nearest_word(word, candidates);
  return best.empty() ? std::move(otherwise) : fmt::format("did you mean '{}'?", best);
}

std::string did_you_mean_any(std::string_view word, const std::vector<std::string>& candidates) {
  std::vector<std::pair<size_t, std::string>> near;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kLongest || word.size() > kLongest) continue;
    const size_t edits = edit_distance(word, candidate);
    if (edits <= std::max<size_t>(2, word.size() / 3)) near.emplace_back(edits, candidate);
  }
  std::ranges::sort(near);
  near.resize(std::min<size_t>(3, near.size()));
  std::string text;
  for (size_t k = 0; k < near.size(); ++k)
    text += fmt::format("{}'{}'", k == 0 ? "did you mean " : k + 1 == near.size() ? " or " : ", ", near[k].second);
  return text.empty() ? text : text + "?";
}

}  // namespace lumen

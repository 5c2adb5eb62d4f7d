// Look-up of declarations by name, and guesses for names that are unknown. Proved by tests/number/reader_test.cpp.
#include "number/read/names.h"

#include <fmt/format.h>

#include <algorithm>

namespace lumen::read {
namespace {

// Levenshtein distance, for short names.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row[b.size()];
}

template <typename Declaration>
const Declaration* find(const std::vector<const lang::File*>& files, std::string_view name,
                        std::vector<Declaration> lang::File::* list) {
  for (const lang::File* file : files) {
    for (const Declaration& declaration : file->*list) {
      if (declaration.name == name) return &declaration;
    }
  }
  return nullptr;
}

}  // namespace

const lang::Function* Names::function(std::string_view name) {
  const auto* found = find(files_, name, &lang::File::functions);
  if (found) used_.insert(found->name);
  return found;
}

const lang::Table* Names::table(std::string_view name) {
  const auto* found = find(files_, name, &lang::File::tables);
  if (found) used_.insert(found->name);
  return found;
}

const lang::FormatDecl* Names::format(std::string_view name) {
  const auto* found = find(files_, name, &lang::File::formats);
  if (found) used_.insert(found->name);
  return found;
}

const lang::FormatAlias* Names::alias(std::string_view name) const {
  return find(files_, name, &lang::File::aliases);
}

std::string nearest_names(std::string_view name, const std::vector<std::string>& known) {
  constexpr size_t kLongest = 64;
  std::vector<std::pair<size_t, std::string>> near;
  for (const std::string& candidate : known) {
    if (candidate.size() > kLongest || name.size() > kLongest) continue;
    const size_t steps = distance(name, candidate);
    if (steps <= std::max<size_t>(2, name.size() / 3)) near.emplace_back(steps, candidate);
  }
  std::sort(near.begin(), near.end());
  std::string text;
  for (size_t k = 0; k < std::min<size_t>(3, near.size()); ++k) {
    text += k == 0 ? "did you mean " : k + 1 == std::min<size_t>(3, near.size()) ? " or " : ", ";
    text += fmt::format("'{}'", near[k].second);
  }
  return text.empty() ? text : text + "?";
}

}  // namespace lumen::read

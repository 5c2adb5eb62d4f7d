// A regular expression of the DFA's subset, as an NFA of threads in order of preference.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model/text/unicode/code_set.h"

namespace lumen::model::text {

struct PatternNode {
  enum class Kind : uint8_t { set, fork, ahead, accept } kind = Kind::accept;
  // set: matches a character of sets[set], then `next`. fork: tries `next`, then `other`. ahead: the next character
  // must be in sets[set], or be absent where `end_allowed`; then `next`.
  int32_t set = -1, next = -1, other = -1;
  bool end_allowed = false;
};

struct PatternGraph {
  std::vector<PatternNode> nodes;
  std::vector<CodeSet> sets;
  int32_t start = -1;
};

// nullopt when the pattern is outside the subset or too large; it may still be valid.
std::optional<PatternGraph> parse_pattern(std::string_view text);

}  // namespace lumen::model::text

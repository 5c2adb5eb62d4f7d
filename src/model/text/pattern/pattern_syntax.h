// A regular expression of the subset that a table of states can match, as a graph of threads in order of preference.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model/text/unicode/code_set.h"

namespace lumen::model {

struct PatternNode {
  enum class Kind : uint8_t { set, fork, ahead, accept } kind = Kind::accept;
  // set: a character of sets[set], then `next`. fork: first `next`, else `other`. ahead: the next character must be in
  // sets[set], or there must be none where `end_allowed`; then `next`.
  int32_t set = -1, next = -1, other = -1;
  bool end_allowed = false;
};

struct PatternGraph {
  std::vector<PatternNode> nodes;
  std::vector<CodeSet> sets;
  int32_t start = -1;
};

// Nothing when the pattern is outside the subset or too large; that is no statement about its validity.
std::optional<PatternGraph> parse_pattern(std::string_view text);

}  // namespace lumen::model

// Regular expressions of JSON schemas (the regular part of ECMA-262) as nondeterministic automata over characters.
// Supported: alternatives, groups, all quantifiers, classes, escapes (\d \w \s \p{..} \xHH \uHHHH \u{..}), anchors
// anywhere, and lookaheads right after a leading ^. Back references, lookbehinds and word boundaries are not regular or
// not supported. Proved by tests/model/infer/schema/pattern_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model/text/unicode/code_set.h"

namespace lumen::model::infer {

// A Thompson automaton. A text is accepted if a part of it leads from `start` to a node of kind match.
struct Nfa {
  struct Node {
    enum class Kind : uint8_t { set, split, begin, end, match } kind = Kind::match;
    uint32_t set = 0;              // index into sets
    uint32_t next = 0, other = 0;  // other: second successor of a split
  };
  std::vector<Node> nodes;
  std::vector<text::CodeSet> sets;
  uint32_t start = 0;

  // Adds the nodes reachable from `node` without a character to `out`, in the order of discovery. `seen` has one entry
  // per node. Anchors are passed only at the begin or the end of the text.
  void close(uint32_t node, bool at_begin, bool at_end, std::vector<uint8_t>& seen, std::vector<uint32_t>& out) const;
};

class EcmaPattern {
 public:
  // nullopt: not supported, not well-formed, or too large.
  static std::optional<EcmaPattern> parse(std::string_view ecma);

  // True if the pattern matches some part of the text (UTF-8).
  bool matches(std::string_view text) const;

  // All parts must match, negated ones must not.
  struct Part {
    Nfa nfa;
    bool is_negated = false;
  };
  const std::vector<Part>& parts() const { return parts_; }
  size_t size() const;  // nodes

 private:
  std::vector<Part> parts_;
};

}  // namespace lumen::model::infer

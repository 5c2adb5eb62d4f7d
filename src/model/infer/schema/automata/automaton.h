// Deterministic automata over characters: made of patterns, lengths, lists of strings and remainders; intersected,
// complemented and trimmed. Every operation is bounded. Proved by tests/model/infer/schema/pattern_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/infer/schema/automata/pattern.h"
#include "model/text/unicode/code_set.h"

namespace lumen::model::infer {

class Automaton {
 public:
  static constexpr size_t kMostStates = 4000, kMostCells = size_t{1} << 21;  // cells: states x character classes

  // nullopt of any function here: the automaton would exceed the bounds, or the work the budget. `budget`: steps that
  // may be taken, reduced by those that were; null: as many as the bounds allow.
  static std::optional<Automaton> of(const EcmaPattern& pattern, size_t* budget = nullptr);
  static std::optional<Automaton> of_length(int64_t least, int64_t most);  // characters; most < 0: no maximum
  static std::optional<Automaton> of_strings(const std::vector<std::string>& list);
  // Decimal numbers without exponent that are multiples of a / 10^places, with at most `places` digits after the point.
  static std::optional<Automaton> of_multiples(int64_t a, int places);
  std::optional<Automaton> intersect(const Automaton& other, size_t* budget = nullptr) const;
  std::optional<Automaton> complement() const;

  bool empty() const { return next_.empty(); }  // accepts no text
  size_t states() const { return accepts_.size(); }
  bool accepts(uint32_t state) const { return accepts_[state]; }
  bool accepts_text(std::string_view text) const;
  // Successors of a state (0 is the first), each with its characters. Every state reaches an accepting one.
  std::vector<std::pair<uint32_t, text::CodeSet>> successors(uint32_t state) const;

 private:
  static constexpr int32_t kDead = -1;
  static std::optional<Automaton> of(const Nfa& nfa, size_t* budget);
  int32_t step(uint32_t state, char32_t c) const;
  int class_of(char32_t c) const;
  void split(std::vector<text::CodeSet> sets);  // the classes by membership in the sets
  void trim();                                  // removes states that reach no accepting one

  std::vector<std::pair<char32_t, int>> starts_;  // the first character of each interval, and its class; -1: none
  size_t classes_ = 0;
  std::vector<int32_t> next_;  // [state][class]
  std::vector<bool> accepts_;
};

}  // namespace lumen::model::infer

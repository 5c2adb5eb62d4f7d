// Decimal numbers and the automata of their ranges: the JSON numbers without exponent between two bounds, and
// multiples. Proved by tests/model/infer/schema/pattern_test.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "model/infer/schema/automata/automaton.h"

namespace lumen::model::infer {

// An exact decimal number: whole has no leading zeros ("0" for none), fraction no trailing ones.
struct Decimal {
  bool is_negative = false;
  std::string whole = "0", fraction = {};

  // nullopt: not a number, or more than 40 digits before or after the point.
  static std::optional<Decimal> of(const nlohmann::ordered_json& number);
  static std::optional<Decimal> parse(std::string text);  // "-12.5e3"
  bool is_zero() const { return whole == "0" && fraction.empty(); }
};
// Below 0, 0 or above 0, as a is below, equal to or above b.
int compare(const Decimal& a, const Decimal& b);
// Whether `number` is a whole multiple of `of`, computed in decimals. nullopt: too many digits to compute.
std::optional<bool> is_multiple(const Decimal& number, const Decimal& of);

struct NumberRange {
  bool is_whole = false;  // no digits after the point
  std::optional<Decimal> least, most;
  bool excludes_least = false, excludes_most = false;

  void raise(const Decimal& bound, bool excludes);  // takes the tighter bound
  void lower(const Decimal& bound, bool excludes);
  bool is_open() const { return !least && !most; }
  // The numbers of the range with up to 16 digits before and after the point, or as many as the bounds have.
  std::optional<Automaton> automaton() const;
};

// nullopt: too many states, or not above 0.
std::optional<Automaton> multiples_automaton(const Decimal& of);

}  // namespace lumen::model::infer

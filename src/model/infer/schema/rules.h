// The grammar that a schema is compiled to: numbered rules, printed as GBNF in the end. Rules that match nothing, such
// as objects with a member that cannot exist, are left out. Proved by tests/model/infer/schema/schema_test.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/infer/schema/automata/automaton.h"

namespace lumen::model::infer {

// A part of an alternative: a rule, or a GBNF expression if rule < 0; repeated from least to most times (most < 0:
// any).
struct RulePart {
  std::string text = {};
  int32_t rule = -1;
  int64_t least = 1, most = 1;
};
using RuleParts = std::vector<RulePart>;

class Rules {
 public:
  explicit Rules(std::string prefix) : prefix_(std::move(prefix)) {}

  int32_t add();  // a rule without alternatives, which matches nothing
  int32_t add(std::vector<RuleParts> alternatives);
  void put(int32_t rule, RuleParts alternative);
  static RulePart use(int32_t rule, int64_t least = 1, int64_t most = 1) { return {{}, rule, least, most}; }
  static RulePart text(std::string expression) { return {std::move(expression)}; }
  // The strings of the automaton as the inside of a JSON string, or as they are.
  int32_t add(const Automaton& automaton, bool in_string);

  size_t count() const { return rules_.size(); }
  size_t bytes() const { return bytes_; }  // an estimate of the printed text

  // Prints what `root` uses. Empty if `root` matches nothing.
  std::string print(int32_t root) const;
  std::string name(int32_t rule) const;

 private:
  std::vector<bool> productive() const;
  int32_t characters(const text::CodeSet& set, bool in_string);

  std::string prefix_;
  std::vector<std::vector<RuleParts>> rules_;
  std::map<std::pair<bool, std::vector<text::CodeSet::Range>>, int32_t> sets_;
  size_t bytes_ = 0;
};

// Quotes a string as a grammar literal.
std::string grammar_literal(const std::string& text);

}  // namespace lumen::model::infer

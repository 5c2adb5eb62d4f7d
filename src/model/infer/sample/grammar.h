// Grammars that outputs must follow, in GBNF: rules of strings, classes of characters, groups, alternatives and
// repetitions. A grammar works on bytes (characters are compiled to their UTF-8), so tokens with parts of characters
// are no special case. Left recursion is refused. Proved by tests/model/infer/grammar_test.cpp.
//
//   root  ::= "{" pair ("," pair)* "}"
//   pair  ::= [a-z]+ ":" [0-9]{1,3}      # comment
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/infer/sample/token_set.h"
#include "model/text/tokenizer/tokenizer.h"
#include "model/text/vocabulary/token_trie.h"

namespace lumen::model {

class Grammar {
 public:
  // Error with its place when the text is no grammar; `name` is used in messages.
  static Grammar parse(const std::string& text, const std::string& name = "grammar");

  struct Element {
    enum class Kind : uint8_t { bytes, rule, end } kind = Kind::end;
    uint8_t first = 0, last = 0;  // bytes
    uint32_t rule = 0;
  };
  // Alternatives of a rule are places in elements(), each a run up to an end.
  const std::vector<std::vector<uint32_t>>& rules() const { return rules_; }
  const std::vector<Element>& elements() const { return elements_; }
  uint32_t root() const { return root_; }

 private:
  class Layout;
  std::vector<bool> empty_rules() const;
  void refuse_left_recursion(const std::string& name) const;

  std::vector<std::vector<uint32_t>> rules_;
  std::vector<Element> elements_;
  uint32_t root_ = 0;
};

// Where an output stands in a grammar: all ways to go on. States are numbered and remembered, so steps that were seen
// before cost a look-up. Memory is bounded: when too much is remembered it is forgotten and found again.
class GrammarMatcher {
 public:
  explicit GrammarMatcher(std::shared_ptr<const Grammar> grammar);

  // Takes bytes; false (and nothing is taken) when the grammar does not allow them.
  bool accept(std::string_view bytes);
  bool allows(std::string_view bytes);
  bool may_end();   // what was taken is a whole text of the grammar
  bool must_end();  // and nothing can follow

  // The tokens that may come next; ends of generation where the text may end.
  const TokenSet& allowed(const Tokenizer& tokenizer, const TokenTrie& trie);
  void restart();

 private:
  struct Stack {  // what comes next, and then the stack below; [0] is the empty one: the end
    uint32_t element = 0, below = 0;
    friend bool operator==(const Stack&, const Stack&) = default;
  };
  struct StackHash {
    size_t operator()(const Stack& s) const {
      return (uint64_t{s.element} << 32 | s.below) * 0x9e3779b97f4a7c15u >> 20;
    }
  };
  using State = std::vector<uint32_t>;  // stacks whose top is a byte, or 0; ascending

  static constexpr int32_t kUnknown = -2, kDead = -1;

  uint32_t stack(Stack s);
  void expand(uint32_t element, uint32_t below, State& out);
  int32_t state(State s);
  int32_t step(int32_t from, uint8_t byte);
  void forget();

  std::shared_ptr<const Grammar> grammar_;
  std::vector<Stack> stacks_;
  std::unordered_map<Stack, uint32_t, StackHash> stack_ids_;
  std::vector<State> states_;
  std::map<State, int32_t> state_ids_;
  std::vector<std::vector<int32_t>> steps_;  // [state][byte]
  std::unordered_map<int32_t, TokenSet> masks_;
  int32_t now_ = kDead;
};

// The tokens of a tokenizer by the bytes they stand for; empty ones, end tokens and (without `controls`, with which
// they stand for their names) control tokens are left out.
TokenTrie generation_trie(const Tokenizer& tokenizer, std::vector<std::string>* strings, bool controls = false);

}  // namespace lumen::model

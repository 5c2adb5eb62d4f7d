// Grammar-constrained decoding, in GBNF: rules of strings, classes of characters, groups, alternatives and repetitions.
// A grammar works on bytes (characters are compiled to their UTF-8), so tokens with parts of characters need no special
// case. Left recursion is rejected. Proved by tests/model/infer/sample/grammar_test.cpp.
//
// root  ::= "{" pair ("," pair)* "}" pair  ::= [a-z]+ ":" [0-9]{1,3}      # comment
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
  // Error with the position if the text is not a valid grammar; `name` is used in messages.
  static Grammar parse(const std::string& text, const std::string& name = "grammar");

  struct Element {
    enum class Kind : uint8_t { bytes, rule, end } kind = Kind::end;
    uint8_t first = 0, last = 0;  // range of bytes
    uint32_t rule = 0;
  };
  // Alternatives of a rule are indices into elements(); each is a sequence up to an element of kind end.
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

// The state of an output in a grammar: all possible continuations. It is a lazily built automaton: states are numbered
// and cached, so transitions seen before cost a lookup. Memory is bounded: a cache that grows too large is cleared and
// rebuilt.
class GrammarMatcher {
 public:
  explicit GrammarMatcher(std::shared_ptr<const Grammar> grammar);

  // Accepts bytes; returns false and changes nothing if the grammar does not allow them.
  bool accept(std::string_view bytes);
  bool allows(std::string_view bytes);
  bool may_end();   // the accepted text is complete
  bool must_end();  // the text is complete and nothing can follow

  // The tokens allowed next; end tokens if the text may end.
  const TokenSet& allowed(const Tokenizer& tokenizer, const TokenTrie& trie);
  void restart();

 private:
  struct Stack {  // the next element, and the stack below it; [0] is the empty stack: the end of the grammar
    uint32_t element = 0, below = 0;
    friend bool operator==(const Stack&, const Stack&) = default;
  };
  struct StackHash {
    size_t operator()(const Stack& s) const {
      return (uint64_t{s.element} << 32 | s.below) * 0x9e3779b97f4a7c15u >> 20;
    }
  };
  using State = std::vector<uint32_t>;  // stacks with a byte on top, or 0; ascending

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

// The tokens of a tokenizer by their bytes. Empty tokens, end tokens and control tokens are left out; with `controls`,
// control tokens are included by their names.
TokenTrie generation_trie(const Tokenizer& tokenizer, std::vector<std::string>* strings, bool controls = false);

}  // namespace lumen::model

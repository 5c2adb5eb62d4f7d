// The states of outputs in a grammar: all possible continuations of a text. They form an automaton that is built where
// outputs get to, with the tokens that each state allows. Outputs with the same grammar share it, so that a state's
// tokens are looked up once. Memory is bounded: where an automaton has grown too large, outputs take their states along
// into a new one. Proved by tests/model/infer/grammar/grammar_test.cpp and
// tests/model/infer/generate/constraint_cache_test.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/infer/grammar/grammar.h"
#include "model/infer/sample/token_set.h"

namespace lumen::model::infer {

// An automaton, for several threads.
class GrammarAutomaton {
 public:
  explicit GrammarAutomaton(std::shared_ptr<const Grammar> grammar);

  static constexpr int32_t kDead = -1;  // the state of a text that the grammar does not allow
  int32_t begin();
  int32_t step(int32_t from, std::string_view bytes);
  bool may_end(int32_t state) const;   // a text in it is complete
  bool must_end(int32_t state) const;  // it is complete and nothing can follow
  // The tokens that may follow; end tokens if the text may end. All calls have the same tokenizer and trie.
  std::shared_ptr<const TokenSet> allowed(int32_t state, const text::Tokenizer& tokenizer, const text::TokenTrie& trie);

  bool is_full() const;
  int32_t take(const GrammarAutomaton& other, int32_t state);  // a state of another automaton of the grammar
  int64_t bytes() const;                                       // about its memory

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

  static constexpr int32_t kUnknown = -2;

  uint32_t stack(Stack s);
  void expand(uint32_t element, uint32_t below, State& out);
  int32_t state(State s);
  int32_t step_by(int32_t from, uint8_t byte);
  bool ends(int32_t state) const { return state != kDead && states_[state].front() == 0; }

  std::shared_ptr<const Grammar> grammar_;
  mutable std::mutex mutex_;  // of what follows
  std::vector<Stack> stacks_;
  std::unordered_map<Stack, uint32_t, StackHash> stack_ids_;
  std::vector<State> states_;
  std::map<State, int32_t> state_ids_;
  std::vector<std::vector<int32_t>> steps_;  // [state][byte]
  std::unordered_map<int32_t, std::shared_ptr<const TokenSet>> masks_;
  int64_t bytes_ = 0, mask_bytes_ = 0;
};

// What outputs with the same grammar, tokenizer and trie share.
class GrammarStates {
 public:
  explicit GrammarStates(std::shared_ptr<const Grammar> grammar);
  std::shared_ptr<GrammarAutomaton> automaton() const;
  std::shared_ptr<GrammarAutomaton> after(const std::shared_ptr<GrammarAutomaton>& full);
  int64_t bytes() const;  // about the memory of the grammar and of its automaton

 private:
  std::shared_ptr<const Grammar> grammar_;
  mutable std::mutex mutex_;  // of what follows
  std::shared_ptr<GrammarAutomaton> automaton_;
};

// The state of an output in a grammar.
class GrammarMatcher {
 public:
  explicit GrammarMatcher(std::shared_ptr<const Grammar> grammar);  // with states of its own
  explicit GrammarMatcher(std::shared_ptr<GrammarStates> states);

  // Accepts bytes; returns false and changes nothing if the grammar does not allow them.
  bool accept(std::string_view bytes);
  bool allows(std::string_view bytes);
  bool may_end();   // the accepted text is complete
  bool must_end();  // the text is complete and nothing can follow

  // The tokens allowed next; end tokens if the text may end. Valid until the next call.
  const TokenSet& allowed(const text::Tokenizer& tokenizer, const text::TokenTrie& trie);
  void restart();

 private:
  std::shared_ptr<GrammarStates> states_;
  std::shared_ptr<GrammarAutomaton> automaton_;
  int32_t now_ = GrammarAutomaton::kDead;
  std::shared_ptr<const TokenSet> allowed_;
};

}  // namespace lumen::model::infer

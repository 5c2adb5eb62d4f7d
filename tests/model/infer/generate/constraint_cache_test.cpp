// Needs: none. Requests with the same grammar share its states and the tokens that these allow: they are those of a
// grammar of one's own, on several threads, and where an automaton is full. What is too much is dropped.
#include "model/infer/generate/constraint_cache.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "base/threads/team.h"

namespace lumen::model::infer {
namespace {

const char* const kList = "root ::= \"a\" ([b-d] | \"e\" root)* \"f\"?\n";

struct Shared {
  text::Tokenizer tokenizer = text::Tokenizer::characters("abcdefghij ");
  std::shared_ptr<const TokenStrings> tokens = std::make_shared<const TokenStrings>(tokenizer);
};

std::vector<bool> members(const TokenSet& set, size_t size) {
  std::vector<bool> out;
  for (size_t id = 0; id < size; ++id) out.push_back(set.has(id));
  return out;
}

// A random text of the grammar, with the tokens that each of its states allows.
void expect_states_of_its_own(const Shared& shared, const Constraint& constraint, const std::string& text,
                              uint32_t seed) {
  std::mt19937 random(seed);
  GrammarMatcher own(std::make_shared<const Grammar>(Grammar::parse(text))), matcher(constraint.states);
  for (int step = 0; step < 60; ++step) {
    const auto want = members(own.allowed(shared.tokenizer, shared.tokens->trie), shared.tokenizer.size());
    ASSERT_EQ(members(matcher.allowed(shared.tokenizer, constraint.tokens->trie), shared.tokenizer.size()), want);
    ASSERT_EQ(matcher.may_end(), own.may_end());
    ASSERT_EQ(matcher.must_end(), own.must_end());
    const std::string next(1, char('a' + random() % 10));
    const bool is_allowed = own.accept(next);
    ASSERT_EQ(matcher.allows(next), is_allowed);
    ASSERT_EQ(matcher.accept(next), is_allowed);
  }
}

TEST(ConstraintCache, RequestsShareAGrammar) {
  const Shared shared;
  ConstraintCache cache;
  const auto a = cache.get(shared.tokenizer, kList, shared.tokens),
             b = cache.get(shared.tokenizer, kList, shared.tokens);
  EXPECT_EQ(a, b);
  EXPECT_EQ(cache.size(), 1);
  // The tokens of other strings are others.
  const auto others = std::make_shared<const TokenStrings>(shared.tokenizer, true);
  EXPECT_NE(cache.get(shared.tokenizer, kList, others), a);
  EXPECT_NE(cache.get(shared.tokenizer, "root ::= [a-j]+\n", shared.tokens), a);
  EXPECT_EQ(cache.size(), 3);
  EXPECT_THROW((void)cache.get(shared.tokenizer, "root ::= x", shared.tokens), Error);
  EXPECT_EQ(cache.size(), 3);
  // The tokens of a state are looked up once: the second matcher gets the same set.
  GrammarMatcher first(a->states), second(b->states);
  EXPECT_EQ(&first.allowed(shared.tokenizer, shared.tokens->trie),
            &second.allowed(shared.tokenizer, shared.tokens->trie));
}

TEST(ConstraintCache, StatesAreThoseOfAGrammarOfOnesOwn) {
  const Shared shared;
  ConstraintCache cache;
  parallel_for(0, 16, {.grain = 1, .is_worth = true}, [&](int64_t i) {
    const std::string text = i % 2 == 0 ? kList : "root ::= [a-e]{3,40} [f-j]*\n";
    expect_states_of_its_own(shared, *cache.get(shared.tokenizer, text, shared.tokens), text, uint32_t(i));
  });
  EXPECT_EQ(cache.size(), 2);
}

TEST(ConstraintCache, OutputsGoOnWhereAnAutomatonIsFull) {
  const Shared shared;
  const std::string text = "root ::= (\"(\" root \")\" | [a-j])*\n";
  const auto states = std::make_shared<GrammarStates>(std::make_shared<const Grammar>(Grammar::parse(text)));
  GrammarMatcher slow(states), fast(states);
  EXPECT_TRUE(slow.accept("(a"));
  const auto before = states->automaton();
  for (int i = 0; i < 6000; ++i) ASSERT_TRUE(fast.accept("("));
  EXPECT_NE(states->automaton(), before);
  EXPECT_TRUE(slow.allows("b)"));
  EXPECT_TRUE(slow.accept("b)"));
  EXPECT_TRUE(slow.may_end());
  EXPECT_FALSE(slow.accept(")"));
  for (int i = 0; i < 6000; ++i) ASSERT_TRUE(fast.accept(")"));
  EXPECT_TRUE(fast.may_end());
  EXPECT_FALSE(fast.accept(")"));
}

TEST(ConstraintCache, WhatIsTooMuchIsDropped) {
  const Shared shared;
  ConstraintCache cache(20000);
  const auto grammar = [](int i) { return "root ::= [a-j]{" + std::to_string(i) + "}\n"; };
  const auto first = cache.get(shared.tokenizer, grammar(1), shared.tokens);
  for (int i = 2; i < 40; ++i) {
    const auto last = cache.get(shared.tokenizer, grammar(i), shared.tokens);
    expect_states_of_its_own(shared, *last, grammar(i), uint32_t(i));
  }
  EXPECT_GE(cache.size(), 1);
  EXPECT_LT(cache.size(), 20);
  // What is dropped stays for those that have it, and is made again for others.
  EXPECT_NE(cache.get(shared.tokenizer, grammar(1), shared.tokens), first);
  expect_states_of_its_own(shared, *first, grammar(1), 1);
  EXPECT_EQ(cache.get(shared.tokenizer, grammar(1), shared.tokens),
            cache.get(shared.tokenizer, grammar(1), shared.tokens));
}

}  // namespace
}  // namespace lumen::model::infer

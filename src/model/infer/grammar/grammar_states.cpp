#include "model/infer/grammar/grammar_states.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/error.h"

namespace lumen::model::infer {
namespace {

constexpr size_t kMostStates = 4096, kMostStacks = size_t{1} << 20, kMostWays = 4096;
constexpr int64_t kMostMaskBytes = int64_t{16} << 20;

// About the memory of an entry of a table, besides what it holds.
constexpr int64_t kEntryBytes = 48;

}  // namespace

GrammarAutomaton::GrammarAutomaton(std::shared_ptr<const Grammar> grammar) : grammar_(std::move(grammar)), stacks_(1) {}

int32_t GrammarAutomaton::begin() {
  const std::lock_guard lock(mutex_);
  State begin;
  for (const uint32_t alternative : grammar_->rules()[grammar_->root()]) expand(alternative, 0, begin);
  return state(std::move(begin));
}

uint32_t GrammarAutomaton::stack(Stack s) {
  const auto [at, fresh] = stack_ids_.emplace(s, static_cast<uint32_t>(stacks_.size()));
  if (fresh) {
    if (stacks_.size() >= kMostStacks)
      throw Error(Exit::user, "the grammar needs too much memory", "write it with less nesting");
    stacks_.push_back(s);
    bytes_ += kEntryBytes + int64_t{sizeof(Stack)};
  }
  return at->second;
}

// Adds the stacks with a byte on top that are reachable from `element` with `below` under it.
void GrammarAutomaton::expand(uint32_t element, uint32_t below, State& out) {
  const auto& elements = grammar_->elements();
  std::vector<Stack> open{{element, below}};
  std::unordered_set<Stack, StackHash> seen;
  size_t work = 0;
  while (!open.empty()) {
    auto [e, under] = open.back();
    open.pop_back();
    if (++work > (size_t{1} << 18) || out.size() > kMostWays)
      throw Error(Exit::user, "the grammar has too many possible continuations", "make it less ambiguous");
    // At the end of a rule, matching continues below it; the empty stack is the end of the grammar.
    while (elements[e].kind == Grammar::Element::Kind::end && under != 0) {
      e = stacks_[under].element;
      under = stacks_[under].below;
    }
    if (!seen.insert({e, under}).second) continue;
    switch (elements[e].kind) {
      case Grammar::Element::Kind::end:
        out.push_back(0);
        break;
      case Grammar::Element::Kind::bytes:
        out.push_back(stack({e, under}));
        break;
      case Grammar::Element::Kind::rule: {
        // The last element of a rule needs no entry to return to (tail call).
        const bool last = elements[e + 1].kind == Grammar::Element::Kind::end;
        const uint32_t rest = last ? under : stack({e + 1, under});
        for (const uint32_t alternative : grammar_->rules()[elements[e].rule]) open.push_back({alternative, rest});
        break;
      }
    }
  }
}

int32_t GrammarAutomaton::state(State s) {
  std::sort(s.begin(), s.end());
  s.erase(std::unique(s.begin(), s.end()), s.end());
  if (s.empty()) return kDead;
  const auto [at, fresh] = state_ids_.emplace(s, static_cast<int32_t>(states_.size()));
  if (fresh) {
    bytes_ += 2 * (kEntryBytes + std::ssize(s) * int64_t{sizeof(uint32_t)});
    states_.push_back(std::move(s));
    steps_.emplace_back(256, kUnknown);
    bytes_ += kEntryBytes + std::ssize(steps_.back()) * int64_t{sizeof(int32_t)};
  }
  return at->second;
}

int32_t GrammarAutomaton::step_by(int32_t from, uint8_t byte) {
  if (from == kDead) return kDead;
  if (const int32_t known = steps_[from][byte]; known != kUnknown) return known;
  State next;
  const State here = states_[from];
  for (const uint32_t s : here) {
    if (s == 0) continue;
    const Stack top = stacks_[s];
    const Grammar::Element& e = grammar_->elements()[top.element];
    if (byte >= e.first && byte <= e.last) expand(top.element + 1, top.below, next);
  }
  const int32_t to = state(std::move(next));
  steps_[from][byte] = to;
  return to;
}

int32_t GrammarAutomaton::step(int32_t from, std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  for (const char b : bytes) from = step_by(from, static_cast<uint8_t>(b));
  return from;
}

bool GrammarAutomaton::may_end(int32_t state) const {
  const std::lock_guard lock(mutex_);
  return ends(state);
}

bool GrammarAutomaton::must_end(int32_t state) const {
  const std::lock_guard lock(mutex_);
  return ends(state) && states_[state].size() == 1;
}

bool GrammarAutomaton::is_full() const {
  const std::lock_guard lock(mutex_);
  return states_.size() > kMostStates || stacks_.size() > kMostStacks / 2;
}

int64_t GrammarAutomaton::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_ + mask_bytes_;
}

// The stacks of the state come along, from the bottom up.
int32_t GrammarAutomaton::take(const GrammarAutomaton& other, int32_t taken) {
  if (taken == kDead) return kDead;
  State here;
  std::vector<Stack> old;
  {
    const std::lock_guard lock(other.mutex_);
    here = other.states_[taken];
    old = other.stacks_;
  }
  const std::lock_guard lock(mutex_);
  std::unordered_map<uint32_t, uint32_t> moved{{0, 0}};
  State kept;
  for (const uint32_t s : here) {
    std::vector<uint32_t> path;
    for (uint32_t i = s; !moved.contains(i); i = old[i].below) path.push_back(i);
    for (size_t i = path.size(); i-- > 0;) moved[path[i]] = stack({old[path[i]].element, moved[old[path[i]].below]});
    kept.push_back(moved[s]);
  }
  return state(std::move(kept));
}

std::shared_ptr<const TokenSet> GrammarAutomaton::allowed(int32_t from, const text::Tokenizer& tokenizer,
                                                          const text::TokenTrie& trie) {
  const std::lock_guard lock(mutex_);
  if (const auto found = masks_.find(from); found != masks_.end()) return found->second;
  auto mask = std::make_shared<TokenSet>(tokenizer.size());
  struct Frame {
    uint32_t node;
    int32_t state;
  };
  std::vector<Frame> open{{0, from}};
  const auto& nodes = trie.nodes();
  while (!open.empty()) {
    const Frame f = open.back();
    open.pop_back();
    const text::TokenTrie::Node& n = nodes[f.node];
    for (text::TokenId t = n.token; t >= 0; t = trie.same(t)) mask->add(t);
    for (uint32_t c = n.first_child; c < n.first_child + n.children; ++c) {
      const int32_t next = step_by(f.state, nodes[c].byte);
      if (next != kDead) open.push_back({c, next});
    }
  }
  if (ends(from)) {
    for (const text::TokenId t : tokenizer.end_of_generation()) mask->add(t);
  }
  if (mask_bytes_ >= kMostMaskBytes) {
    masks_.clear();
    mask_bytes_ = 0;
  }
  mask_bytes_ += kEntryBytes + int64_t(mask->size() / 8);
  masks_[from] = mask;
  return mask;
}

GrammarStates::GrammarStates(std::shared_ptr<const Grammar> grammar)
    : grammar_(std::move(grammar)), automaton_(std::make_shared<GrammarAutomaton>(grammar_)) {}

std::shared_ptr<GrammarAutomaton> GrammarStates::automaton() const {
  const std::lock_guard lock(mutex_);
  return automaton_;
}

std::shared_ptr<GrammarAutomaton> GrammarStates::after(const std::shared_ptr<GrammarAutomaton>& full) {
  const std::lock_guard lock(mutex_);
  if (automaton_ == full) automaton_ = std::make_shared<GrammarAutomaton>(grammar_);
  return automaton_;
}

int64_t GrammarStates::bytes() const {
  return automaton()->bytes() + std::ssize(grammar_->elements()) * int64_t{sizeof(Grammar::Element)};
}

GrammarMatcher::GrammarMatcher(std::shared_ptr<const Grammar> grammar)
    : GrammarMatcher(std::make_shared<GrammarStates>(std::move(grammar))) {}

GrammarMatcher::GrammarMatcher(std::shared_ptr<GrammarStates> states) : states_(std::move(states)) {
  restart();
}

bool GrammarMatcher::allows(std::string_view bytes) {
  return automaton_->step(now_, bytes) != GrammarAutomaton::kDead;
}

bool GrammarMatcher::may_end() {
  return automaton_->may_end(now_);
}

bool GrammarMatcher::must_end() {
  return automaton_->must_end(now_);
}

bool GrammarMatcher::accept(std::string_view bytes) {
  if (automaton_->is_full()) {
    const std::shared_ptr<GrammarAutomaton> next = states_->after(automaton_);
    now_ = next->take(*automaton_, now_);
    automaton_ = next;
  }
  const int32_t to = automaton_->step(now_, bytes);
  if (to == GrammarAutomaton::kDead) return false;
  now_ = to;
  return true;
}

const TokenSet& GrammarMatcher::allowed(const text::Tokenizer& tokenizer, const text::TokenTrie& trie) {
  allowed_ = automaton_->allowed(now_, tokenizer, trie);
  return *allowed_;
}

void GrammarMatcher::restart() {
  automaton_ = states_->automaton();
  now_ = automaton_->begin();
}

}  // namespace lumen::model::infer

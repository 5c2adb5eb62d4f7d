// A multiple-choice problem: items, each of which takes one of its candidates. What a choice loses is the sum of the
// candidates' scores, and of terms for pairs of candidates of one block. Nothing couples blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lumen::model {

struct ChoiceCandidate {
  std::string name;
  int64_t bytes = 0;
  double score = 0;  // predicted rise of the loss, nats; may be below 0
  double ms = 0;     // a token
};

// A weight, or several that must share a choice.
struct ChoiceItem {
  std::string name;
  int64_t weights = 0;  // numbers; budgets of bits per weight count them
  std::vector<ChoiceCandidate> candidates;
};

// What two items of a block lose beyond the sum of their scores.
struct PairTerms {
  size_t a = 0, b = 0;        // items of the block
  std::vector<double> terms;  // [candidates of a, candidates of b]
};

struct ChoiceBlock {
  std::vector<ChoiceItem> items;
  std::vector<PairTerms> pairs;  // each pair of items once
};

struct ChoiceProblem {
  std::vector<ChoiceBlock> blocks;
  int64_t fixed_bytes = 0, fixed_weights = 0;  // of what is not chosen, but counts
  double fixed_ms = 0;

  int64_t weights() const;
  // Error when an item has no candidate, or a number is not finite, or below 0 where it must not be; LUMEN_CHECK where
  // pairs are not as above.
  void require_whole() const;
};

struct Choice {
  std::vector<std::vector<size_t>> picks;  // [block][item]: the candidate
  int64_t bytes = 0;                       // the fixed ones among them, as in what follows
  double bits = 0;                         // per weight; 0 where no weights are known
  double ms = 0, score = 0;
  bool proved = false;  // no choice within the budget is better, but for rounding (1e-9 of the values)
  double bound = 0;     // what no choice goes below: a score, or bytes where a score is limited
  double gap = 0;       // how far this choice may be from the best: 0 when proved
};

// The figures of a choice, by its picks.
Choice figures(const ChoiceProblem& problem, std::vector<std::vector<size_t>> picks);

}  // namespace lumen::model

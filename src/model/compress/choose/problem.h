// A multiple-choice problem: items, each of which takes one of its candidates. The loss of a choice is the sum of the
// candidates' scores, and of terms for pairs of candidates of one block. Blocks are independent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lumen::model::compress {

struct ChoiceCandidate {
  std::string name;
  int64_t bytes = 0;
  double score = 0;  // predicted rise of the loss, nats; may be negative
  double ms = 0;     // per token
};

// A weight, or several that must share a choice.
struct ChoiceItem {
  std::string name;
  int64_t weights = 0;  // numbers; divisor of bits per weight
  std::vector<ChoiceCandidate> candidates;
};

// The loss of two items of a block beyond the sum of their scores.
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
  int64_t fixed_bytes = 0, fixed_weights = 0;  // counted, but not chosen
  double fixed_ms = 0;

  int64_t weights() const;
  // Error when an item has no candidate, or a number is not finite, or negative where it must not be; LUMEN_CHECK that
  // pairs are as above.
  void require_whole() const;
};

struct Choice {
  std::vector<std::vector<size_t>> picks;  // [block][item]: the candidate
  int64_t bytes = 0;                       // including the fixed ones, as below
  double bits = 0;                         // per weight; 0 where no weights are known
  double ms = 0, score = 0;
  bool proved = false;  // no choice within the budget is better, up to rounding (1e-9 of the values)
  double bound = 0;     // lower bound of every choice: a score, or bytes where a score is limited
  double gap = 0;       // upper bound of the distance from the best choice: 0 when proved
};

// The figures of a choice, computed from its picks.
Choice figures(const ChoiceProblem& problem, std::vector<std::vector<size_t>> picks);

}  // namespace lumen::model::compress

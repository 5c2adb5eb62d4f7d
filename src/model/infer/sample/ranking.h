// Tokens by their logits, the best first, found as far as somebody asks: of a vocabulary of 150,000 a sampler looks at
// a few dozen. One pass over the logits finds the best k (what is below the k-th so far is passed over, 32 at a time);
// who asks beyond gets eight times as many. Proved by tests/model/infer/ranking_test.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "model/infer/sample/logit_row.h"

namespace lumen::model {

class Ranking {
 public:
  // `logits` of tokens 0, 1, ..; those of `changed` count instead, `barred` tokens (true; it may be shorter) do not
  // exist, nor do those whose logit is -infinity. `first` is how many are looked for at first.
  Ranking(std::span<const float> logits, const std::vector<bool>& barred,
          const std::unordered_map<TokenId, double>& changed, size_t first);
  // A narrowed row's, which has no infinite logits. The same ranks; but whoever asks beyond what is known, be it a
  // rank or a sum, meets Undecided. `barred_count`: how many tokens of the vocabulary are barred.
  Ranking(const Narrowed& narrowed, const std::vector<bool>& barred, size_t barred_count,
          const std::unordered_map<TokenId, double>& changed);

  // Bars what is not allowed; where the mask is shorter than the vocabulary what it lacks, too. Ranks begin anew.
  void only(const std::vector<bool>& allowed);
  // Leaves these alone, which are in order.
  void take(std::vector<Candidate> ranked);
  // Leaves the best `most`.
  void keep(size_t most);

  bool has(size_t i) { return i < ranked_.size() || (!complete_ && find(i)); }
  const Candidate& operator[](size_t i) const { return ranked_[i]; }  // where has(i) was true
  const std::vector<Candidate>& all();                                // ranks every one
  size_t count();                                                     // how many there are, without ranking them
  // The sum of weights exp((logit - best) / temperature) of all that are left.
  double total(double temperature);
  // Bounds of that: both are it where it is known.
  struct Bounds {
    double low, high;
  };
  Bounds total_within(double temperature);

 private:
  bool find(size_t i);
  void rank(size_t most);
  template <typename Visit>
  void each(Visit visit) const;

  std::span<const float> logits_;
  std::vector<bool> hidden_;       // barred, or among extra_
  std::vector<Candidate> extra_;   // whose logits are changed
  std::vector<Candidate> ranked_;  // the best, in order
  bool complete_ = false;          // ranked_ holds all
  size_t first_;

  const Narrowed* narrowed_ = nullptr;
  size_t count_ = 0;         // of a narrowed row's tokens that are left
  double gone_ = 0;          // weights, as its sum counts them, of known tokens that are barred or changed,
  size_t gone_unknown_ = 0;  // and how many more of those there are
};

}  // namespace lumen::model

// Ranks tokens by logits, best first, only as far as needed: of a vocabulary of 150,000 a sampler uses a few dozen. One
// pass over the logits finds the top k (32 logits at a time are skipped if they are below the k-th so far); a higher
// rank multiplies k by eight. A sampler may need the token at which a sum of weights is reached (nucleus sampling),
// which has a high rank in a flat distribution. Then nothing is sorted: weights are added up in buckets by logit, and
// only the bucket that reaches the sum is sorted. Proved by tests/model/infer/sample/ranking_test.cpp.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <unordered_map>
#include <vector>

#include "model/infer/sample/logit_row.h"
#include "model/infer/sample/race.h"
#include "model/infer/sample/token_set.h"

namespace lumen::model {

class Ranking {
 public:
  // `logits` of tokens 0, 1, ..; `changed` replaces some of them; `barred` tokens (the set may be smaller than the
  // vocabulary) and those with a logit of -infinity are excluded. `first`: number of ranks computed at first.
  Ranking(std::span<const float> logits, const TokenSet& barred, const std::unordered_map<TokenId, double>& changed,
          size_t first);
  // The tokens of a reduced row, which has no infinite logits. Ranks are the same, but a rank or a sum outside of the
  // reduction throws Undecided. `barred_count`: number of barred tokens in the vocabulary.
  Ranking(const Narrowed& narrowed, const TokenSet& barred, size_t barred_count,
          const std::unordered_map<TokenId, double>& changed);

  // Excludes tokens that are not in the set, including ids beyond its size. Ranks are recomputed.
  void only(const TokenSet& allowed);
  // Keeps only these tokens, which are sorted.
  void take(std::vector<Candidate> ranked);
  // Keeps the best `most` (top-k).
  void keep(size_t most);
  // Keeps the tokens that are not worse than `last`, which need not be a token, and at least the best one. For a
  // reduced row that does not know all of them, `last` must be a bound on the logit only.
  void keep_down_to(const Candidate& last);
  // A `last` with this id is no token: all tokens with its logit are kept.
  static constexpr auto kNoToken = std::numeric_limits<TokenId>::max();

  Ranking(const Ranking&) = delete;
  Ranking& operator=(const Ranking&) = delete;
  ~Ranking();

  bool has(size_t i) { return i < ranked_.size() || (!complete_ && find(i)); }
  const Candidate& operator[](size_t i) const { return ranked_[i]; }  // requires has(i)
  const std::vector<Candidate>& all();                                // ranks all tokens
  size_t count();                                                     // number of tokens, without ranking them
  // The sum of weights exp((logit - best) / temperature) of all tokens that are left.
  double total(double temperature);
  // Bounds of this sum; equal if it is known exactly.
  struct Bounds {
    double low, high;
  };
  Bounds total_within(double temperature);

  // Removes the best `count` tokens, whose ranks must be known; more must be left.
  void leave_out(size_t count);
  // Standard deviation of the remaining logits. Throws Undecided if a reduced row does not suffice.
  double standard_deviation();

  // Locally typical sampling (Meister et al. 2022): keeps the tokens whose surprisal is nearest to the entropy, until
  // they have `share` of the total weight at temperature 1. Throws Undecided if a reduced row does not suffice.
  void keep_typical(double share);

  // Whether rank i is available without a pass over the logits.
  bool is_near(size_t i) const { return complete_ || i < ranked_.size(); }
  // The token at which the sum of weights, from the best token on, reaches `mass`; the worst token if it is never
  // reached. There must be at least one token, and the row must not be a reduced one that is incomplete. Ranks nothing.
  Candidate reaching(double mass, double temperature);

  // The sum of weights at a temperature of the tokens that are not worse than this logit. As total().
  double total_down_to(double logit, double temperature);

  // The winner of the race among the tokens that are left, by weights at a temperature. Undecided where a narrowed row
  // does not have the groups that it takes. There is at least one token. Leaves ranks alone.
  Candidate winner(const Race& race, double temperature);

 private:
  // The tokens, in the order of a key, of the bucket in which the sum of weights reaches `mass`, up to and including
  // that token.
  template <typename Key>
  std::vector<Candidate> reached(double mass, double temperature, const Key& key, float largest);

  bool find(size_t i);
  void rank(size_t most);
  void gather();          // ranks all remaining tokens if they are few
  bool is_small() const;  // too small for vector code and buckets to pay off
  template <typename Visit>
  void each(Visit visit) const;
  std::vector<Candidate> left() const;  // unsorted
  void weigh(double temperature);
  float spread(double temperature) const;  // distance of the lowest logit with a weight from the best one
  double weight_of(const Candidate& c, double temperature) const;
  void keep_typical_of_all(double share);
  void forget_ranks();
  // Races of some tokens, in any order; of a whole row; of a narrowed row's groups.
  struct Lead;
  void enter(std::vector<Candidate> tokens, const Race& race, double temperature, Lead& lead) const;
  Candidate winner_of_whole(const Race& race, double temperature);
  Candidate winner_of_narrowed(const Race& race, double temperature) const;
  std::vector<Candidate> left_in_group(int64_t group, std::span<const float> logits) const;

  std::span<const float> logits_;
  TokenSet hidden_;                // barred, in extra_, or not kept
  std::vector<Candidate> extra_;   // tokens with changed logits
  std::vector<Candidate> ranked_;  // the best, sorted
  bool complete_ = false;          // ranked_ has all tokens
  float least_;                    // lower logits are excluded
  size_t first_;

  // Weights of the logits that are left; weighed_at_: their temperature, 0: not computed.
  double weighed_at_ = 0, weighed_ = 0;
  std::vector<float> weights_, sums_;  // sums_: of words of a TokenSet

  const Narrowed* narrowed_ = nullptr;
  size_t count_ = 0;         // remaining tokens of a reduced row
  double gone_ = 0;          // total weight, in units of the row's sum, of known tokens that are barred or changed,
  size_t gone_unknown_ = 0;  // and the number of other barred or changed tokens
};

}  // namespace lumen::model

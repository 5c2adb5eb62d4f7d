// Tokens by their logits, the best first, found as far as is needed: of a vocabulary of 150,000 a sampler looks at a
// few dozen. One pass over the logits finds the best k (logits below the k-th so far are skipped, 32 at a time); a
// higher rank makes that eight times as many. Where a sampler needs the token at which a sum of weights is reached,
// which in a flat distribution has a high rank, no order is made: weights are added up in buckets by logit, and only
// the bucket that reaches the sum is sorted. Proved by tests/model/infer/ranking_test.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "model/infer/sample/logit_row.h"
#include "model/infer/sample/race.h"
#include "model/infer/sample/token_set.h"

namespace lumen::model {

class Ranking {
 public:
  // `logits` of tokens 0, 1, ..; those of `changed` count instead, `barred` tokens (the set may be smaller) do not
  // exist, nor do those whose logit is -infinity. `first` is how many are looked for at first.
  Ranking(std::span<const float> logits, const TokenSet& barred, const std::unordered_map<TokenId, double>& changed,
          size_t first);
  // The tokens of a narrowed row, which has no infinite logits. The same ranks; but a rank or a sum beyond what is
  // known throws Undecided. `barred_count`: how many tokens of the vocabulary are barred.
  Ranking(const Narrowed& narrowed, const TokenSet& barred, size_t barred_count,
          const std::unordered_map<TokenId, double>& changed);

  // Bars what is not allowed; where the set is smaller than the vocabulary, all beyond it. Ranks begin anew.
  void only(const TokenSet& allowed);
  // Leaves these alone, which are in order.
  void take(std::vector<Candidate> ranked);
  // Leaves the best `most`.
  void keep(size_t most);
  // Leaves those that are not worse than `last`, which need not be a token. At least the best one stays. Of a narrowed
  // row only a bound on the logit can be kept where not all of these are known.
  void keep_down_to(const Candidate& last);

  Ranking(const Ranking&) = delete;
  Ranking& operator=(const Ranking&) = delete;
  ~Ranking();

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

  // Removes the best `count` of those that are left; there are more. Their ranks must be known.
  void leave_out(size_t count);
  // Of the logits that are left. Undecided where a narrowed row does not know all.
  double standard_deviation();

  // Leaves the tokens whose surprise is nearest to the expected one until they have `share` of all weight at
  // temperature 1 (Meister et al. 2022). Undecided where a narrowed row does not know all.
  void keep_typical(double share);

  // Whether it costs no pass over the logits to find out about rank i.
  bool is_near(size_t i) const { return complete_ || i < ranked_.size(); }
  // The best token that weighs `mass` together with all better ones; the worst one where all weigh less. There is at
  // least one token, and not all that is known is what a row was narrowed to. Ranks nothing.
  Candidate reaching(double mass, double temperature);

  // The sum of weights at a temperature of the tokens that are not worse than this logit. As total().
  double total_down_to(double logit, double temperature);

  // The winner of the race among the tokens that are left, by weights at a temperature. Undecided where a narrowed row
  // does not have the groups that it takes. There is at least one token. Leaves ranks alone.
  Candidate winner(const Race& race, double temperature);

 private:
  // In the order of a key, the tokens of the bucket in which the sum of weights reaches `mass`, up to that token.
  template <typename Key>
  std::vector<Candidate> reached(double mass, double temperature, const Key& key, float largest);

  bool find(size_t i);
  void rank(size_t most);
  void gather();          // ranks all that are left, where they are few
  bool is_small() const;  // then nothing is gained by vectors and buckets
  template <typename Visit>
  void each(Visit visit) const;
  std::vector<Candidate> left() const;  // in no order
  void weigh(double temperature);
  float spread(double temperature) const;  // how far logits that weigh something lie below the best one
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
  TokenSet hidden_;                // barred, among extra_, or not kept
  std::vector<Candidate> extra_;   // whose logits are changed
  std::vector<Candidate> ranked_;  // the best, in order
  bool complete_ = false;          // ranked_ holds all
  float least_;                    // logits below it are not kept
  size_t first_;

  // Weights of the logits that are left, at a temperature; 0: not computed.
  double weighed_at_ = 0, weighed_ = 0;
  std::vector<float> weights_, sums_;  // sums_: of words of a TokenSet

  const Narrowed* narrowed_ = nullptr;
  size_t count_ = 0;         // of a narrowed row's tokens that are left
  double gone_ = 0;          // weights, as its sum counts them, of known tokens that are barred or changed,
  size_t gone_unknown_ = 0;  // and how many more of those there are
};

}  // namespace lumen::model

// Ranks tokens by logits, best first, only as far as needed: of a vocabulary of 150,000 a sampler uses a few dozen. One
// pass over the logits finds the largest one of each group of tokens; afterwards only groups are looked at that can
// matter: for the top k, those with a large enough peak; for a draw, those that can win the race. A higher rank
// multiplies k by eight.
//
// A sampler may keep the best tokens up to a share of the weight (nucleus sampling), which are many in a flat
// distribution. Nothing is sorted then, and the last one of them is not looked for at first: a sample of the groups
// says about where it is, and one pass adds up weights in f32, which proves that it lies between two logits. The few
// tokens between these are in doubt. A draw that none of them can decide is made; for others, the tokens in doubt are
// gathered and most of them decided, and at last sums in f64 settle which tokens are kept. Proved by
// tests/model/infer/sample/ranking_test.cpp and kept_test.cpp beside it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "model/infer/sample/logit_row.h"
#include "model/infer/sample/outline.h"
#include "model/infer/sample/race.h"
#include "model/infer/sample/race_entry.h"
#include "model/infer/sample/token_set.h"
#include "model/infer/sample/weights.h"

namespace lumen::model::infer {

class Ranking {
 public:
  // `logits` of tokens 0, 1, ..; `changed` replaces some of them; `barred` tokens (the set may be smaller than the
  // vocabulary) and those with a logit of -infinity are excluded. `first`: number of ranks computed at first.
  Ranking(std::span<const float> logits, const TokenSet& barred,
          const std::unordered_map<text::TokenId, double>& changed, size_t first);
  // The tokens of a reduced row, which has no infinite logits. Ranks are the same, but a rank or a sum outside of the
  // reduction throws Undecided. `barred_count`: number of barred tokens in the vocabulary.
  Ranking(const Narrowed& narrowed, const TokenSet& barred, size_t barred_count,
          const std::unordered_map<text::TokenId, double>& changed);

  // Excludes tokens that are not in the set, including ids beyond its size. Ranks are recomputed. Undecided for a
  // reduced row, unless it was masked by this set.
  void only(const TokenSet& allowed);
  bool is_masked() const { return narrowed_ && narrowed_->is_masked; }
  // Keeps only these tokens, which are sorted.
  void take(std::vector<Candidate> ranked);
  static constexpr size_t kFewRanks = 128;  // more tokens than that are kept without an order
  // Keeps the best `most` (top-k).
  void keep(size_t most);
  // Keeps the tokens that are not worse than `last`, which need not be a token, and at least the best one. For a
  // reduced row that does not know all of them, `last` must be a bound on the logit only.
  void keep_down_to(const Candidate& last);
  // A `last` with this id is no token: all tokens with its logit are kept.
  static constexpr auto kNoToken = std::numeric_limits<text::TokenId>::max();

  Ranking(const Ranking&) = delete;
  Ranking& operator=(const Ranking&) = delete;

  bool has(size_t i) { return (i < ranked_.size() && !cut_) || find(i); }
  const Candidate& operator[](size_t i) const { return ranked_[i]; }  // requires has(i)
  const std::vector<Candidate>& all();                                // ranks all tokens
  size_t count();                                                     // number of tokens, without ranking them
  // The sum of weights exp((logit - best) / temperature) of all tokens that are left, in f64. Throws Undecided if a
  // reduced row does not suffice.
  double total(double temperature);
  // Bounds of this sum, from one pass in f32; equal if it is known exactly. Throws Undecided if a reduced row has none.
  struct Bounds {
    double low, high;
  };
  Bounds total_within(double temperature);

  // Removes the best `count` tokens, whose ranks must be known; more must be left.
  void leave_out(size_t count);
  // Standard deviation of the remaining logits. Throws Undecided if a reduced row does not suffice.
  double standard_deviation();

  // Whether the sum `mass` of the weights of the best tokens has reached that share of the sum of all. Sums in f64
  // differ by their order; those that are equal but for it have reached it.
  static bool reaches(double mass, double share, double total) { return mass >= share * total * (1 - 1e-12); }
  // Keeps the best tokens until they have `share` of the total weight at temperature 1 (top-p). Throws Undecided if a
  // reduced row does not suffice.
  void keep_share(double share);
  // The same, and of these only tokens whose weight at temperature 1 is at least `least`, in (0, 1] (top-p and min-p).
  void keep_share_and_weights(double share, double least);
  // The same for the tokens whose surprisal is nearest to the entropy, then by rank (locally typical sampling, Meister
  // et al. 2022). With x = logit - best, the surprisal of a token is log(sum of weights) - x, and the entropy is
  // log(sum) minus the mean of x by weight: the distance is that of x from this mean.
  void keep_typical(double share);
  // Whether the tokens whose weight at temperature 1 is at least `least` have that share of the total weight.
  bool is_reached_with(double least, double share);
  // Keeps the tokens whose weight at temperature 1 is at least `least`, in (0, 1] (min-p).
  void keep_weights(double least);

  bool is_reduced() const { return narrowed_ && !complete_; }
  // Whether rank i is available without a pass over the logits.
  bool is_near(size_t i) const { return complete_ || i < ranked_.size(); }
  // The tokens that are left, in any order.
  std::vector<Candidate> left();

  // The winner of the race among the tokens that are left, by weights at a temperature. Undecided where a narrowed row
  // does not have the groups that it takes. There is at least one token. Leaves ranks alone.
  Candidate winner(const Race& race, double temperature);

 private:
  // The tokens that were cut off by a share of the weight, as far as this is known: those with logits in `near` are
  // kept, those outside of `far` are not, and the others are in doubt.
  struct Cut {
    double share;
    bool is_typical;  // nearest to the entropy, not the best
    LogitRange near, far;
    // Sums of weights in f32, of all tokens and of those in `summed`, where `near` is a part of; and the logit that
    // distances are measured from, with its error.
    LogitRange summed = {};
    double all = 0, mass = 0, middle = 0, slack = 0;
    bool is_refined = false;
  };

  void only_of_masked(const TokenSet& allowed);
  bool find(size_t i);
  void rank(size_t most);
  float bound_of_best(size_t most);
  void keep_many(size_t most);
  void drop_worse(const Candidate& last, std::span<const Candidate> equal);
  void raise_least(float least);
  template <typename IsDropped>
  void drop_changed(const IsDropped& is_dropped);
  std::vector<Candidate> best_of(size_t most, bool* is_all);
  bool is_small() const;  // too small for passes to pay off
  const std::vector<float>& peaks();
  template <typename Visit>
  void each(Visit visit);
  template <typename Visit>
  void each_in_group(int64_t group, std::span<const float> logits, Visit visit) const;
  double weight_of(const Candidate& c, double temperature) const;
  void forget_ranks();
  void hide_others(const TokenSet& kept);
  float least_of_weight(double least) const;
  template <typename Keeps>
  bool keep_known(const Keeps& keeps);

  // Bounds of sums of weights that are equal but for kWeightError.
  WeightSums sums(double temperature, LogitRange near, LogitRange far, bool moments, float least);
  static double scale_of(double temperature) { return std::min(1 / temperature, 1e30); }
  ExactSums exact(double temperature, LogitRange near);
  double sum_beyond(double enough);
  bool ends_among_known(double share, double all);
  Outline outline(float least);
  void cut(double share, bool is_typical);
  void prove_cut(double share, bool is_typical, const Outline& outline);
  std::vector<Candidate> doubtful();
  void refine();
  void settle();

  RaceEntry enter(int64_t group, std::span<const float> logits, const Race& race, double temperature) const;
  Candidate winner_of_list(std::vector<Candidate> tokens, const Race& race, double temperature) const;
  std::optional<Candidate> winner_of_whole(const Race& race, double temperature);
  Candidate winner_of_narrowed(const Race& race, double temperature) const;

  std::span<const float> logits_;
  TokenSet hidden_;                // barred, in extra_, or not kept
  std::vector<Candidate> extra_;   // tokens with changed logits
  std::vector<Candidate> ranked_;  // the best, sorted
  bool complete_ = false;          // ranked_ has all tokens
  float least_;                    // lower logits are excluded
  size_t first_;

  // Upper bounds of the logits of each group that are left, changed ones as well; empty: not computed.
  std::vector<float> peaks_;
  bool peaks_are_met_ = false;         // each is the logit of a token that is left, apart from `least_`
  std::optional<Cut> cut_;             // nothing else is excluded after it
  double summed_at_ = 0, summed_ = 0;  // the sum of weights in f32, and its temperature; 0: not computed

  const Narrowed* narrowed_ = nullptr;
  size_t count_ = 0;         // remaining tokens of a reduced row
  double gone_ = 0;          // total weight, in units of the row's sum, of known tokens that are barred or changed,
  size_t gone_unknown_ = 0;  // and the number of other barred or changed tokens
};

template <typename Visit>
void Ranking::each_in_group(int64_t group, std::span<const float> logits, Visit visit) const {
  const int64_t first = group * Race::kGroup;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float x = logits[i];
    if (x >= least_ && x > -kMostLogit && !hidden_.has(first + i)) visit(Candidate{text::TokenId(first + i), x});
  }
}

template <typename Visit>
void Ranking::each(Visit visit) {
  for (const Candidate& c : extra_) visit(c);
  const bool skips = !is_small();
  for (int64_t g = 0; g < groups_of(logits_.size()); ++g) {
    if (skips && !(peaks()[g] >= least_)) continue;
    const size_t first = g * Race::kGroup;
    each_in_group(g, logits_.subspan(first, std::min<size_t>(Race::kGroup, logits_.size() - first)), visit);
  }
}

}  // namespace lumen::model::infer

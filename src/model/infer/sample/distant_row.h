// A row whose logits stay on the device, as a sampler sees it: the best tokens, and tallies of tokens above some edges
// (RowSource::count). They bound where a filter cuts: above one edge all tokens are kept, below another one none, and
// the tokens between these are in doubt. Whatever is too uncertain is asked for, and the sampler begins again once the
// row knows it. A draw is decided where no token in doubt could change it. Proved by
// tests/model/infer/narrowing/further_rows_test.cpp.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "model/infer/sample/logit_row.h"
#include "model/infer/sample/race.h"
#include "model/infer/sample/token_set.h"

namespace lumen::model::infer {

class DistantRow {
 public:
  // `known`: the row's reduction, to the allowed tokens if a filter restricts them.
  explicit DistantRow(Narrowed known);

  // What the row's source is asked for next: a count for tallies, otherwise a look.
  struct Need {
    enum class Kind : uint8_t { tallies, logits, best, race, group } kind = Kind::tallies;
    TokenSet allowed = {};
    Asked asked = {};
    TokenRange range = {};
    std::vector<Candidate> edges = {};
    double temperature = 1;
    float best = 0, center = 0;
  };
  const Need& need() const { return need_; }
  // The answer to it. Undecided if the row cannot be reduced.
  void learn(std::optional<Narrowed> seen);
  void learn(const Tallies& tallies);

  // What follows throws Missing if it needs the answer to need() first, Again if a new attempt with the smallest doubt
  // may succeed, and Undecided if only the full row decides.
  struct Missing {};
  struct Again {};

  int64_t vocabulary() const { return vocabulary_; }
  // The logit of a token; needs for those of `all`, which has no duplicates, if this one is not known.
  double logit(text::TokenId id, const std::vector<text::TokenId>& all);
  // Begins an attempt with the allowed tokens, of which `changed` have other logits. `temperature` is that of weights
  // in cuts. `is_exact`: cuts leave as little doubt as they can, because others follow; otherwise only what a draw
  // needs.
  void begin(TokenSet allowed, const std::unordered_map<text::TokenId, double>& changed, double temperature,
             bool is_exact);

  // The best tokens, in order, as far as they are known: at least one, unless there is none.
  const std::vector<Candidate>& top() const { return top_; }
  bool is_top_all() const { return is_complete_; }
  void require_top(size_t count);  // so many of them
  int64_t count();                 // of all tokens, before any cut

  // Cuts, as those of Ranking.
  void keep(int64_t most);
  void keep_typical(double share);
  void keep_share(double share, double least);  // and those of them whose weight is at least `least`
  void keep_down_to(double low, double high);   // a logit that lies between these two
  void leave_out(size_t count);                 // the best tokens, which are known
  struct Bounds {
    double low = 0, high = 0;
  };
  Bounds standard_deviation();  // of all logits
  Bounds total();               // weight of the tokens that are kept, relative to that of top()[0]
  bool surely_keeps(const Candidate& c) const { return near_.has(c); }
  bool may_keep(const Candidate& c) const { return far_.has(c); }

  // The winner of the race among the tokens that are kept, by weights at a temperature.
  Candidate winner(uint32_t seed, uint64_t number, double temperature);

 private:
  struct Sums {
    Bounds count, weight;
    Bounds mean = {};  // of logits by weight, if it was counted
  };
  struct Counted {  // what was counted above an edge, without tokens whose logits are changed
    Tally tally;
    float best, center;
    double magnitude;
  };
  struct IsBetter {
    bool operator()(const Candidate& a, const Candidate& b) const { return is_better(a, b); }
  };
  enum class Reach : uint8_t { no, unknown, yes, exactly };
  struct Entry;

  double weight_of(double logit) const;
  Sums known_sums(const Candidate& edge) const;
  Sums counted_sums(const Candidate& edge, const Counted& counted) const;
  Sums sums_above(const Candidate& edge) const;
  static Candidate over(float high);
  Sums kept_above(const Candidate& edge) const;

  [[noreturn]] void ask(Need need);
  [[noreturn]] void ask_for(std::vector<Candidate> edges, double center);
  void require(const std::vector<Candidate>& edges);
  double center() const;
  std::vector<Candidate> split(const Candidate& better, const Candidate& worse) const;

  void narrow(const Candidate& near, const Candidate& far);
  void cut(const std::function<Reach(const Sums&)>& reach, bool is_counted);
  void keep_weights(double least);

  void look_for_race(uint32_t seed, uint64_t number, double temperature);
  void look_for_group(int64_t group);
  Entry enter(int64_t group, const Race& race, double temperature) const;

  int64_t vocabulary_;
  Narrowed known_;
  std::unordered_map<text::TokenId, double> logits_;  // of tokens that were asked for
  Need need_;
  int passes_ = 0;
  bool is_exact_ = false;
  bool has_looked_ = false;  // `known_` has no tokens with changed logits, and none that are not allowed

  // What an attempt has found.
  TokenSet visible_;              // allowed tokens with their own logits
  std::vector<Candidate> extra_;  // the others
  std::vector<Candidate> top_;
  std::vector<double> sums_;  // of weights: [i] of the best i + 1
  Candidate floor_{0, 0};     // all tokens outside of top_ are worse
  bool is_complete_ = false;  // there are none
  float best_ = 0;            // logit of visible_
  double temperature_ = 1;
  TokenRange near_, far_;               // what is surely kept, and what may be
  std::vector<text::TokenId> removed_;  // in both, and not kept

  // What was learned.
  std::map<Candidate, Counted, IsBetter> counted_;
  double sum_ = 0, squares_ = 0;  // of all logits, minus the center
  std::optional<double> middle_;  // of typical tokens
  bool has_raced_ = false;
  std::optional<Narrowed> raced_;
  TokenRange raced_range_;
  size_t raced_without_ = 0;                      // number of removed tokens
  std::map<int64_t, std::vector<float>> groups_;  // logits of visible_ in that range
};

}  // namespace lumen::model::infer

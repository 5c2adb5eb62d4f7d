// Choosing the next token from logits. The order of filters is the one users know: constraint, biases, repeat, presence
// and frequency penalties, DRY, top-n-sigma, top-k, typical, top-p, min-p, XTC, temperature; or Mirostat in place of
// the filters behind the penalties. Random numbers are a function of (seed, how many were drawn), so a seed names one
// output. Proved by tests/model/infer/sampler_test.cpp.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/infer/sample/ranking.h"
#include "model/infer/sample/token_set.h"
#include "model/text/tokenizer/tokenizer.h"

namespace lumen::model {

struct SamplerOptions {
  double temperature = 0.8;      // 0: greedy
  int64_t top_k = 40;            // 0: all
  double top_p = 0.95;           // 1: all
  double min_p = 0.05;           // of the best token's probability; 0: all
  double typical_p = 1;          // 1: all
  double top_n_sigma = 0;        // logits at most so many standard deviations below the best (Tang et al. 2024); 0: all
  double xtc_probability = 0;    // of leaving out, at a draw, all but the last of the tokens that are likelier than
  double xtc_threshold = 0.1;    // this share of what the other filters leave
  double repeat_penalty = 1;     // 1: none
  double presence_penalty = 0;   // taken from the logit of each token seen
  double frequency_penalty = 0;  // the same for each time it was seen
  int64_t repeat_last = 64;      // tokens the penalties look back; -1: all
  double dry_multiplier = 0;     // 0: no penalty for repeating what was generated before
  double dry_base = 1.75;        // grows with the length of the repetition
  int64_t dry_allowed_length = 2;
  int64_t dry_last = -1;                   // tokens it looks back; -1: all
  std::vector<TokenId> dry_breakers = {};  // repetitions do not reach across these
  int mirostat = 0;                        // 1 or 2
  double mirostat_rate = 0.1, mirostat_entropy = 5;
  std::vector<std::pair<TokenId, double>> bias = {};  // added to logits; -infinity forbids
  std::vector<TokenId> forbidden = {};                // never drawn, whatever else is asked for
  uint32_t seed = 0;
};

// Which tokens may be picked: asked one by one where a few answers decide, about all at once otherwise.
class TokenFilter {
 public:
  virtual ~TokenFilter() = default;
  virtual bool allows(TokenId id) = 0;
  virtual const TokenSet& all() = 0;
};

class Sampler {
 public:
  explicit Sampler(SamplerOptions options);  // Error (exit 2) on values out of range
  // -1 when the filter leaves none.
  TokenId pick(std::span<const float> logits, TokenFilter* filter = nullptr);
  // The same token: by what the row was narrowed to where that decides, else by the whole row.
  TokenId pick(const LogitRow& row, TokenFilter* filter = nullptr);
  // The same without fetching a row: nullopt where only the whole row decides, and it is not there yet.
  std::optional<TokenId> pick_if_decided(const LogitRow& row, TokenFilter* filter = nullptr);
  // What it will want to know of the next row, of tokens below `vocabulary`.
  Asked asked(int64_t vocabulary) const;
  TokenId pick(std::span<const float> logits, const TokenSet* allowed);
  void forget() { recent_.clear(); }  // what was accepted; draws go on where they were
  void accept(TokenId token);         // prompt tokens count for the penalties, too

 private:
  struct Changes {
    int64_t vocabulary;
    std::function<double(TokenId)> logit;
    std::unordered_map<TokenId, double> to = {};  // what counts instead
    double* of(TokenId id);
  };
  Changes changes(int64_t vocabulary, std::function<double(TokenId)> logit) const;
  TokenId pick(Ranking& ranking, TokenFilter* filter);
  size_t wanted() const;
  bool best_allowed(Ranking& ranking, TokenFilter& filter, size_t wanted) const;
  void penalise(Changes& changes) const;
  void penalise_repetitions(Changes& changes) const;
  void cut(Ranking& ranking) const;
  void leave_out_top(Ranking& ranking) const;
  Candidate draw(Ranking& ranking);
  TokenId mirostat(Ranking& ranking);

  SamplerOptions options_;
  TokenSet barred_;                  // forbidden tokens
  std::vector<TokenId> barred_ids_;  // the same, ascending
  std::deque<TokenId> recent_;
  size_t memory_;  // tokens kept in recent_
  uint64_t drawn_ = 0;
  double surprise_;  // Mirostat's bound
};

// Tokens that contain one of the strings: what ends a repetition.
std::vector<TokenId> tokens_with(const Tokenizer& tokenizer, const std::vector<std::string>& strings);

}  // namespace lumen::model

// Samples the next token from logits. Filters have the conventional order: constraint, biases, repeat, presence and
// frequency penalties, DRY, top-n-sigma, top-k, typical, top-p, min-p, XTC, temperature; Mirostat replaces the filters
// after the penalties. Random numbers are a function of the seed and the number of draws, so a seed determines an
// output. Proved by tests/model/infer/sample/sampler_test.cpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/infer/sample/distant_row.h"
#include "model/infer/sample/ranking.h"
#include "model/infer/sample/token_set.h"
#include "model/text/tokenizer/tokenizer.h"

namespace lumen::model::infer {

struct SamplerOptions {
  double temperature = 0.8;  // 0: greedy
  int64_t top_k = 40;        // 0: off
  double top_p = 0.95;       // 1: off
  double min_p = 0.05;       // relative to the best token's probability; 0: off
  double typical_p = 1;      // 1: off
  double top_n_sigma = 0;    // keeps logits within this many standard deviations of the best (Tang et al. 2024); 0: off
  double xtc_probability = 0;    // of excluding, in a draw, the top choices (XTC): of the tokens with at least
  double xtc_threshold = 0.1;    // this probability after the other filters, all but the least likely one
  double repeat_penalty = 1;     // 1: off
  double presence_penalty = 0;   // subtracted from the logit of each token that has occurred
  double frequency_penalty = 0;  // the same for each occurrence
  int64_t repeat_last = 64;      // window of the penalties in tokens; -1: all
  double dry_multiplier = 0;     // 0: no penalty for repetitions (DRY)
  double dry_base = 1.75;        // base of the exponential in the length of the repetition
  int64_t dry_allowed_length = 2;
  int64_t dry_last = -1;                         // window in tokens; -1: all
  std::vector<text::TokenId> dry_breakers = {};  // repetitions end at these tokens
  int mirostat = 0;                              // version 1 or 2; 0: off
  double mirostat_rate = 0.1, mirostat_entropy = 5;
  std::vector<std::pair<text::TokenId, double>> bias = {};  // added to logits; -infinity excludes a token
  std::vector<text::TokenId> forbidden = {};                // never drawn, regardless of other options
  uint32_t seed = 0;
};

// The tokens that may be picked. They are tested one by one if a few tests suffice, otherwise all at once.
class TokenFilter {
 public:
  virtual ~TokenFilter() = default;
  virtual bool allows(text::TokenId id) = 0;
  virtual const TokenSet& all() = 0;
};

class Sampler {
 public:
  explicit Sampler(SamplerOptions options);  // Error (exit 2) for values out of range
  // -1 if the filter allows no token.
  text::TokenId pick(std::span<const float> logits, TokenFilter* filter = nullptr);
  // The same token: from the reduced row if that suffices, otherwise from the full row.
  text::TokenId pick(const LogitRow& row, TokenFilter* filter = nullptr);
  // The same without fetching a row: nullopt if only the full row decides, and it has not been fetched.
  std::optional<text::TokenId> pick_if_decided(const LogitRow& row, TokenFilter* filter = nullptr);
  // The same from a row whose logits stay on the device: nullopt if it must learn its need() first. Undecided if only
  // the full row decides.
  std::optional<text::TokenId> decide(DistantRow& row, TokenFilter* filter = nullptr);
  // The tokens that the filter allows and that are not barred: a reduced row may be masked by them.
  TokenSet allowed(TokenFilter& filter) const;
  // The values it needs from the next row, for tokens below `vocabulary`.
  Asked asked(int64_t vocabulary) const;
  text::TokenId pick(std::span<const float> logits, const TokenSet* allowed);
  // Bars further tokens, until permit() gets the result: those of them that were not barred before.
  std::vector<text::TokenId> bar(std::span<const text::TokenId> ids);
  void permit(std::span<const text::TokenId> ids);
  void forget() { recent_.clear(); }  // clears accepted tokens; the random state is unchanged
  void accept(text::TokenId token);   // also call it for prompt tokens: penalties apply to them, too

 private:
  struct Changes {
    int64_t vocabulary;
    std::function<double(text::TokenId)> logit;
    std::unordered_map<text::TokenId, double> to = {};  // changed logits
    double* of(text::TokenId id);
  };
  Changes changes(int64_t vocabulary, std::function<double(text::TokenId)> logit) const;
  text::TokenId pick(Ranking& ranking, TokenFilter* filter);
  size_t wanted() const;
  bool best_allowed(Ranking& ranking, TokenFilter& filter, size_t wanted) const;
  void penalise(Changes& changes) const;
  void penalise_repetitions(Changes& changes) const;
  void cut(Ranking& ranking) const;
  void leave_out_top(Ranking& ranking) const;
  Candidate draw(Ranking& ranking);
  text::TokenId mirostat(Ranking& ranking);

  text::TokenId attempt(DistantRow& row, TokenFilter* filter);
  void leave_out_top(DistantRow& row) const;
  text::TokenId mirostat(DistantRow& row);
  // -log2 of a probability, in multiples of a sixteenth of a bit: sums in f32 and in f64 nearly always agree on it, so
  // that outputs do not depend on where logits are.
  static double surprisal(double probability) { return std::round(-16 * std::log2(probability)) / 16; }
  void learn_surprise(double probability) {
    surprise_ -= options_.mirostat_rate * (surprisal(probability) - options_.mirostat_entropy);
  }
  // Mirostat 1: how many of `count` tokens are kept, estimated from the weights of the kEstimated best ones.
  int64_t estimate_kept(std::span<const double> weights, double count) const;
  static constexpr size_t kEstimated = 100;

  SamplerOptions options_;
  TokenSet barred_;                        // forbidden tokens
  std::vector<text::TokenId> barred_ids_;  // the same as ascending ids
  TokenSet breakers_;                      // options_.dry_breakers
  std::deque<text::TokenId> recent_;
  size_t memory_;  // capacity of recent_
  uint64_t drawn_ = 0;
  double surprise_;  // Mirostat's current surprisal limit
};

// Tokens that contain one of the strings; these end repetitions for DRY.
std::vector<text::TokenId> tokens_with(const text::Tokenizer& tokenizer, const std::vector<std::string>& strings);

}  // namespace lumen::model::infer

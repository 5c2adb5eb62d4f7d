// How far a model's predictions are from those of another, whose logits were recorded over the same text: the mean
// Kullback-Leibler divergence of each scored token's distribution, in nats, and what goes with it. Records hold log
// probabilities in 16 bits between the least and the largest of their row. Proved by
// tests/model/infer/divergence_test.cpp.
#pragma once

#include <filesystem>

#include "model/infer/measure/perplexity.h"

namespace lumen::model {

struct Divergence {
  int64_t tokens = 0;
  double mean = 0, error = 0;                     // of the divergence, and its standard error
  double median = 0, p90 = 0, p99 = 0, most = 0;  // of the divergence
  double same_top = 0;                            // part of the tokens whose likeliest next one is the same
  double rms_change = 0;                          // of the probability of the token that really came
  double ratio = 0;                               // of the perplexities, this model's by the recorded one's
  double nats = 0, nats_error = 0;                // mean loss of this model, and its standard error
  double other_nats = 0, other_nats_error = 0;    // of the recorded one
};

// Figures of scored tokens, taken in one by one.
class DivergenceSum {
 public:
  // A token: how far its distribution is from the other model's, whether both have the same likeliest token, and
  // the nats that each gives to the token that came.
  void add(double divergence, bool same_top, double nats, double other_nats);
  Divergence finish() const;

 private:
  std::vector<double> all_;
  int64_t same_ = 0;
  double changes_ = 0, nats_ = 0, other_nats_ = 0, squares_ = 0, other_squares_ = 0;
};

// Whatever computes logits [tokens, vocabulary] of windows.
struct LogitsSource {
  int64_t vocabulary = 0;
  std::optional<TokenId> bos;
  std::function<void(std::span<const TokenId> window, std::span<float> logits)> logits;
};
void record_logits(const LogitsSource& source, const std::vector<TokenId>& text, const PerplexityOptions& options,
                   const std::filesystem::path& file, const std::function<void(int64_t, int64_t)>& progress = {});

// Runs the model over the windows and writes its log probabilities of every scored position.
void record_logits(const LoadedModel& loaded, const std::vector<TokenId>& text, const PerplexityOptions& options,
                   const std::filesystem::path& file, const std::function<void(int64_t, int64_t)>& progress = {});

// The text, window length and protocol must be those of the record (Error).
Divergence divergence(const LoadedModel& loaded, const std::vector<TokenId>& text, const PerplexityOptions& options,
                      const std::filesystem::path& file, const std::function<void(int64_t, int64_t)>& progress = {});

// The same between two models, `merged` against `base` with its adapters; the record is written to `record` and
// is the caller's to remove. One of them is loaded at a time.
Divergence divergence_between(run::Engine& engine, const Model& base, std::span<const ScaledAdapter> adapters,
                              const Model& merged, const std::vector<TokenId>& text, const PerplexityOptions& options,
                              const std::filesystem::path& record,
                              const std::function<void(int64_t, int64_t)>& progress = {});

}  // namespace lumen::model

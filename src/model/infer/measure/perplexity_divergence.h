// Kullback-Leibler divergence between a model and another one whose logits were recorded over the same text: the mean
// over the distributions of all scored tokens, in nats, and related figures. Records store log probabilities in 16
// bits, scaled between the minimum and maximum of their row. Proved by tests/model/infer/divergence_test.cpp.
#pragma once

#include <filesystem>

#include "model/infer/measure/perplexity.h"

namespace lumen::model::infer {

struct Divergence {
  int64_t tokens = 0;
  double mean = 0, error = 0;                     // of the divergence, and its standard error
  double median = 0, p90 = 0, p99 = 0, most = 0;  // of the divergence
  double same_top = 0;                            // fraction of tokens with the same most likely next token
  double rms_change = 0;                          // RMS change of the probability of the actual next token
  double ratio = 0;                               // of perplexities: this model's over the recorded one's
  double nats = 0, nats_error = 0;                // mean loss of this model, and its standard error
  double other_nats = 0, other_nats_error = 0;    // of the recorded one
};

// Accumulates the figures of scored tokens.
class DivergenceSum {
 public:
  // Adds a token: the divergence of its distribution from the other model's, whether both models have the same most
  // likely token, and the negative log-likelihood (nats) of the actual next token by each model.
  void add(double divergence, bool same_top, double nats, double other_nats);
  Divergence finish() const;

 private:
  std::vector<double> all_;
  int64_t same_ = 0;
  double changes_ = 0, nats_ = 0, other_nats_ = 0, squares_ = 0, other_squares_ = 0;
};

// Computes the logits [tokens, vocabulary] of a window.
struct LogitsSource {
  int64_t vocabulary = 0;
  std::optional<text::TokenId> bos;
  std::function<void(std::span<const text::TokenId> window, std::span<float> logits)> logits;
};
void record_logits(const LogitsSource& source, const std::vector<text::TokenId>& text, const PerplexityOptions& options,
                   const std::filesystem::path& file, const std::function<void(int64_t, int64_t)>& progress = {});

// Runs the model over the windows and writes its log probabilities of every scored position.
void record_logits(const LoadedModel& loaded, const std::vector<text::TokenId>& text, const PerplexityOptions& options,
                   const std::filesystem::path& file, const std::function<void(int64_t, int64_t)>& progress = {});

// The text, window length and protocol must equal those of the record (Error).
Divergence divergence(const LoadedModel& loaded, const std::vector<text::TokenId>& text,
                      const PerplexityOptions& options, const std::filesystem::path& file,
                      const std::function<void(int64_t, int64_t)>& progress = {});

// The divergence between two models, `merged` and `base` with its adapters. The record is written to `record`; the
// caller removes it. Only one of the models is loaded at a time.
Divergence divergence_between(run::Engine& engine, const arch::Model& base,
                              std::span<const arch::ScaledAdapter> adapters, const arch::Model& merged,
                              const std::vector<text::TokenId>& text, const PerplexityOptions& options,
                              const std::filesystem::path& record,
                              const std::function<void(int64_t, int64_t)>& progress = {});

}  // namespace lumen::model::infer

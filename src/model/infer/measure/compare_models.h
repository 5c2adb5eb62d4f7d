// Compares models over the windows of one text: the distance of each model's predictions from those of a base model.
// All models are in memory at once, their logits are compared on the device, and nothing is written to disk. If the
// memory does not suffice, perplexity_divergence.h records the base model's logits. Proved by
// tests/model/infer/compare_models_test.cpp.
#pragma once

#include <optional>

#include "model/infer/measure/perplexity_divergence.h"

namespace lumen::model::infer {

struct ModelComparison {
  Divergence divergence;  // from the base model
  // Cosine similarity of the last hidden states of scored tokens: mean and minimum; nullopt if their sizes differ, or
  // if the family has no function for them.
  std::optional<double> cosine, least_cosine;
  double seconds = 0;  // of its forward passes
};

struct ComparedModels {
  std::vector<ModelComparison> others;
  double base_seconds = 0;  // of the base model's forward passes
  double comparing = 0;     // everything except forward passes
};

// Error (user) if the models have different tokens.
void require_same_tokens(const arch::Model& base, const arch::Model& other);

// Estimated bytes that the comparison takes in addition to the models' weights: the logits of a window, and values
// computed from them.
int64_t comparing_bytes(const arch::Model& base, size_t models, const PerplexityOptions& options);

// There must be at least one other model; all belong to one engine and have the same tokens (LUMEN_CHECK).
// options.batch is ignored. `progress` (may be empty) is called after every window: windows done, number of windows;
// false ends the comparison with this window.
ComparedModels compare_models(const LoadedModel& base, std::span<const LoadedModel* const> others,
                              const std::vector<text::TokenId>& text, const PerplexityOptions& options,
                              const std::function<bool(int64_t, int64_t)>& progress = {});

}  // namespace lumen::model::infer

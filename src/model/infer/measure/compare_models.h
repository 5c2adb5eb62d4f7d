// Models side by side over the windows of one text: how far each one's predictions are from those of a base. All are in
// memory at once, logits are compared where they are computed, by kernels, and nothing is written. Where there is no
// room for that, perplexity_divergence.h records the base. Proved by tests/model/infer/compare_models_test.cpp.
#pragma once

#include <optional>

#include "model/infer/measure/perplexity_divergence.h"

namespace lumen::model {

struct ModelComparison {
  Divergence divergence;  // from the base
  // The vectors behind the last layer, of scored tokens: mean and least; nothing where they are of other sizes, or
  // the family does not say what they are.
  std::optional<double> cosine, least_cosine;
  double seconds = 0;  // of its forward passes
};

struct ComparedModels {
  std::vector<ModelComparison> others;
  double base_seconds = 0;  // of the base's forward passes
  double comparing = 0;     // of all that is no forward pass
};

// Error (user) when the models' tokens are not the same.
void require_same_tokens(const Model& base, const Model& other);

// Bytes that comparing so many models takes beside their weights, about: logits of a window, and what is computed of
// them.
int64_t comparing_bytes(const Model& base, size_t models, const PerplexityOptions& options);

// There is another model; all belong to one engine, and have the same tokens (LUMEN_CHECK). options.batch is not looked
// at.
ComparedModels compare_models(const LoadedModel& base, std::span<const LoadedModel* const> others,
                              const std::vector<TokenId>& text, const PerplexityOptions& options,
                              const std::function<void(int64_t, int64_t)>& progress = {});

}  // namespace lumen::model

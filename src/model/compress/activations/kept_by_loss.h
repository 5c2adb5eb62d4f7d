// Chooses the projections with spikes that are worth a higher precision, greedily by the model's KL divergence from its
// unquantized self (the ranking of spike-aware quantization, which uses perplexity). Proved by
// tests/model/compress/activations/activations_test.cpp.
#pragma once

#include "model/compress/activations/activations.h"

namespace lumen::model::compress {

struct KeptByLoss {
  std::set<std::string> kept;
  double before = 0, after = 0;                       // KL divergence, nats per token: none kept, and `kept`
  std::vector<std::pair<std::string, double>> alone;  // each candidate kept alone, by ascending divergence
};

// Tries `formats.kept`, first those that alone reduce the divergence most; stops at the first that reduces it by less
// than `gain` nats (0.003 nats are 0.3 % of perplexity). Weights are rounded to nearest: to `weights`, by parameter, or
// to formats.kept_format. Error for models that predict no tokens.
KeptByLoss kept_by_loss(run::Engine& engine, const arch::Model& model, std::span<const text::TokenId> text,
                        const calibrate::LayerRunOptions& options, std::span<const ActivationRange> ranges,
                        const std::map<std::string, FormatRef>& weights, const ActivationFormats& formats, double gain);

}  // namespace lumen::model::compress

// Which projections with spikes are worth a higher precision: by how far the model is from itself, one after another
// (the ranking of spike-aware quantization, which looks at perplexity). Proved by
// tests/model/compress/activations/activations_test.cpp.
#pragma once

#include "model/compress/activations/activations.h"

namespace lumen::model {

struct KeptByLoss {
  std::set<std::string> kept;
  double before = 0, after = 0;                       // KL divergence, nats a token: with none kept, and with those
  std::vector<std::pair<std::string, double>> alone;  // candidates, each kept alone, by rising divergence
};

// Tries `formats.kept`, beginning with what helps most when it alone is kept; ends with the first that takes less than
// `gain` nats from the divergence (0.003 nats are 0.3 % of perplexity). Weights are rounded to nearest: to `weights`,
// by parameter, or to formats.kept_format. Error for models that predict no tokens.
KeptByLoss kept_by_loss(run::Engine& engine, const Model& model, std::span<const TokenId> text,
                        const LayerRunOptions& options, std::span<const ActivationRange> ranges,
                        const std::map<std::string, FormatRef>& weights, const ActivationFormats& formats, double gain);

}  // namespace lumen::model

#include "model/compress/split/expert_classes.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/threads/team.h"
#include "graph/transform/layers.h"
#include "graph/transform/split_experts/split_experts.h"
#include "model/arch/function.h"
#include "model/compress/quantize.h"

namespace lumen::model::compress {
namespace {

// For each matrix of a stacked weight: sums over its channels of the squared inputs times the squared weight columns.
std::vector<double> energies(std::span<const float> weight, std::span<const float> weighed, int64_t experts) {
  const int64_t columns = std::ssize(weighed) / experts, rows = std::ssize(weight) / experts / columns;
  std::vector<double> out(experts, 0);
  parallel_for(0, experts, [&](int64_t e) {
    std::vector<double> norms(columns, 0);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t k = 0; k < columns; ++k) {
        const double w = weight[(e * rows + r) * columns + k];
        norms[k] += w * w;
      }
    for (int64_t k = 0; k < columns; ++k) out[e] += norms[k] * weighed[e * columns + k];
  });
  return out;
}

bool has_all(const graph::LayerPart& part, const std::vector<std::string>& weights) {
  return std::ranges::all_of(weights, [&](const std::string& name) {
    return std::ranges::find(part.parameters, name) != part.parameters.end();
  });
}

}  // namespace

std::vector<ExpertLayer> expert_layers(const arch::Model& model) {
  std::vector<ExpertLayer> out;
  for (graph::StackedExperts& stacked : graph::stacked_experts(graph::with_numbers(function_of(model, "forward")))) {
    ExpertLayer& layer = out.emplace_back();
    layer.layer = graph::layer_of(stacked.weights.front());
    layer.experts = stacked.experts;
    layer.weights = std::move(stacked.weights);
    layer.rows.assign(layer.experts, 0);
  }
  return out;
}

void add_expert_shares(run::Engine& engine, const arch::Model& model, std::span<const text::TokenId> text,
                       const calibrate::LayerRunOptions& options, const std::filesystem::path& folder,
                       std::vector<ExpertLayer>& layers, const std::function<void(double)>& progress) {
  calibrate::LayerRun run(engine, model, text, options);
  calibrate::CarriedValues values(folder, "experts");
  graph::TapKinds kinds;
  kinds.weighed = true;
  std::vector<bool> done(layers.size(), false);
  for (size_t k = 0; k < run.parts(); ++k) {
    if (progress) progress(double(k) / run.parts());
    std::map<std::string, std::vector<float>> held;
    const auto weight = [&](const std::string& name) -> std::span<const float> {
      std::vector<float>& numbers = held[name];
      if (numbers.empty()) numbers = values_of(engine, model.weights.at(name));
      return numbers;
    };
    const calibrate::PartRun seen = run.run(k, weight, &values, k + 1 < run.parts() ? &values : nullptr, kinds);
    run.drop_read(k, &values);
    for (size_t i = 0; i < layers.size(); ++i) {
      ExpertLayer& layer = layers[i];
      if (done[i] || !has_all(run.part(k), layer.weights)) continue;
      done[i] = true;
      std::vector<double>& shares = layer.shares.emplace_back(layer.experts, 0.0);
      for (const std::string& name : layer.weights) {
        const calibrate::TapSums* const reads = reads_of(seen.taps, name);
        if (!reads) throw user_error("'{}': the inputs of the experts of '{}' cannot be observed", model.name, name);
        const std::vector<double> of = energies(weight(name), reads->weighed, layer.experts);
        const double all = std::accumulate(of.begin(), of.end(), 0.0);
        for (int64_t e = 0; e < layer.experts && all > 0; ++e) shares[e] += of[e] / all / layer.weights.size();
        if (name == layer.weights.front())
          for (int64_t e = 0; e < layer.experts; ++e) layer.rows[e] += std::llround(reads->counts[e]);
      }
    }
  }
}

void choose_expert_classes(std::vector<ExpertLayer>& layers, std::span<const double> widths,
                           std::optional<double> target) {
  for (ExpertLayer& layer : layers) {
    layer.significance = significance(layer.shares);
    layer.classes = bit_classes(layer.significance.mean, widths, target);
  }
}

}  // namespace lumen::model::compress

// How much each expert of a mixture matters on several data sets, and the classes that follows (MoQa, Zheng et al.
// 2025, section 2): what channels add to outputs, S[j] = sum over tokens that pick expert j of (g x[k])^2 |W[:, k]|^2
// over its channels k, g being what the router weighs its output with; of each stacked weight the share in its layer,
// of an expert the mean of its weights' shares. Proved by tests/model/compress/split/expert_classes_test.cpp.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/calibrate/layer_run.h"
#include "model/compress/choose/bit_classes.h"

namespace lumen::model {

// Stacked weights that the same integers pick from, of one layer.
struct ExpertLayer {
  std::vector<std::string> weights;  // parameters, in the order of the graph
  int layer = -1;
  int64_t experts = 0;
  std::vector<std::vector<double>> shares;  // [data set][expert], of sum 1 (0 where no token came by)
  std::vector<int64_t> rows;                // [expert]: tokens that picked it, of all data sets
  Significance significance;                // over the data sets
  BitClasses classes;
};

// The mixtures of a model, without numbers. Empty: it has none.
std::vector<ExpertLayer> expert_layers(const Model& model);
// Runs a text, whole windows, through the model layer by layer: adds its shares and rows to each layer. `folder`: of
// values between layers; empty: memory.
void add_expert_shares(run::Engine& engine, const Model& model, std::span<const TokenId> text,
                       const LayerRunOptions& options, const std::filesystem::path& folder,
                       std::vector<ExpertLayer>& layers, const std::function<void(double)>& progress = {});
// Significance and classes; `widths`: bits of the classes, falling; `target`: what experts of each layer have on
// average at most.
void choose_expert_classes(std::vector<ExpertLayer>& layers, std::span<const double> widths,
                           std::optional<double> target);

}  // namespace lumen::model

// The significance of each expert of a mixture on several data sets, and the classes that follow (MoQa, Zheng et al.
// 2025, section 2): the channels' contribution to outputs, S[j] = sum over tokens routed to expert j of (g x[k])^2
// |W[:, k]|^2 over its channels k, g being the router's weight of its output; for each stacked weight the share in its
// layer, for an expert the mean of its weights' shares. Proved by tests/model/compress/split/expert_classes_test.cpp.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/calibrate/layer_run.h"
#include "model/compress/choose/bit_classes.h"

namespace lumen::model::compress {

// Stacked weights of one layer that are indexed by the same routing.
struct ExpertLayer {
  std::vector<std::string> weights;  // parameters, in the order of the graph
  int layer = -1;
  int64_t experts = 0;
  std::vector<std::vector<double>> shares;  // [data set][expert], of sum 1 (0 where no token was routed)
  std::vector<int64_t> rows;                // [expert]: tokens routed to it, of all data sets
  Significance significance;                // over the data sets
  BitClasses classes;
};

// The mixtures of a model, without numbers. Empty: there are none.
std::vector<ExpertLayer> expert_layers(const arch::Model& model);
// Runs a text, whole windows, through the model layer by layer: adds its shares and rows to each layer. `folder`: of
// values between layers; empty: memory.
void add_expert_shares(run::Engine& engine, const arch::Model& model, std::span<const text::TokenId> text,
                       const calibrate::LayerRunOptions& options, const std::filesystem::path& folder,
                       std::vector<ExpertLayer>& layers, const std::function<void(double)>& progress = {});
// Computes significance and classes; `widths`: bits of the classes, descending; `target`: the maximal average of each
// layer's experts.
void choose_expert_classes(std::vector<ExpertLayer>& layers, std::span<const double> widths,
                           std::optional<double> target);

}  // namespace lumen::model::compress

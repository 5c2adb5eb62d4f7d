// One training step as one graph: forward, loss, gradients, clipping and AdamW, updating parameters and moments in
// place. Knows graphs and parameters, not engines or files. Proved by tests/model/train_test.cpp (finite differences, a
// scalar AdamW).
//
//   g      = clip * d loss / d p          clip = min(1, max_norm / |all gradients|)
//   m, v   = b1 m + (1 - b1) g,  b2 v + (1 - b2) g^2
//   p      = p - lr * (m / c1 / (sqrt(v / c2) + eps) + decay * p)      c = 1 - b^step; decay only where
//   Parameter::decays
#pragma once

#include <string>
#include <vector>

#include "graph/ir/graph.h"
#include "model/arch/family.h"
#include "model/train/held.h"

namespace lumen::model {

struct AdamW {
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
  double weight_decay = 0.1;
  double max_norm = 1.0;  // 0: no clipping
};

// Names of the inputs these graphs have besides the loss graph's own.
inline constexpr const char* kLearningRate = "step.lr";
inline constexpr const char* kCorrection1 = "step.correction1";  // 1 - beta1^step
inline constexpr const char* kCorrection2 = "step.correction2";  // 1 - beta2^step
inline constexpr const char* kFirstMoment = "adam.m.";           // + parameter
inline constexpr const char* kSecondMoment = "adam.v.";
inline constexpr const char* kGradient = "gradient.";
// Results for each parameter: the sum of the squares of its unclipped gradient. They tell where numbers break.
inline constexpr const char* kSquares = "squares.";

// The loss of batches whose positions count differently: the sum of `token_loss` [B, T], its one result, times a data
// input "weights" of the same shape.
graph::Graph weighted_loss(graph::Graph token_loss);

// Results "loss", "norm" (of the unclipped gradients) and "squares.*". `loss` is a graph with one rank-0 result; when
// its extents are numbers, wide logits are never stored whole (graph::differentiate_by_rows). Parameters are held as
// `held` says between steps (held.h).
graph::Graph training_step(graph::Graph loss, const std::vector<Parameter>& trained, const AdamW& settings,
                           const Holding& held = {});

// The same in two graphs for gradient accumulation: the first adds gradients / `parts` to states "gradient.*" and
// returns "loss"; the second applies and clears them, returns "norm", and takes parameters and moments as states.
graph::Graph accumulate_step(graph::Graph loss, const std::vector<Parameter>& trained, int parts,
                             const Holding& held = {});
graph::Graph apply_step(const std::vector<Parameter>& trained, const AdamW& settings, const Holding& held = {});

}  // namespace lumen::model

// One training step as one graph: forward, loss, gradients, clipping and the optimizer's update, with parameters and
// states updated in place. Depends on graphs and parameters, not on engines or files. Proved by
// tests/model/train/train_test.cpp (finite differences, a scalar AdamW) and
// tests/model/recipe/optimizer/optimizer_test.cpp.
//
// g = clip * d loss / d p          clip = min(1, max_norm / |all gradients|)
//
// Quantized states are decoded, used, and encoded again, parameter by parameter: no state of the whole model is ever in
// f32. Formats of small floats with power-of-two scales are rounded to stochastically.
//
// May include: base, base/messages, graph/ir, graph/pass, graph/pipeline, model/arch, model/arch/family, number/facts,
// number/library, run/device.
#pragma once

#include <string>
#include <vector>

#include "graph/ir/graph.h"
#include "graph/pipeline/pipeline.h"
#include "model/arch/family/family.h"
#include "model/recipe/optimizer/held.h"
#include "model/recipe/optimizer/optimizer_rule.h"

namespace lumen::model::recipe {

// Inputs of these graphs besides those of the loss graph: the optimizer's numbers and states (optimizer_rule.h),
// rounding seeds (held.h), and accumulated gradients.
inline constexpr const char* kGradient = "gradient.";  // + parameter
// An input of apply_parts: the global gradient norm, computed elsewhere.
inline constexpr const char* kGivenNorm = "step.norm";
// Results for each parameter: the squared norm of its unclipped gradient. They locate numeric failures.
inline constexpr const char* kSquares = "squares.";
// The clipping factor: limits the global gradient norm to max_norm.
inline constexpr const char* kClip = "step.clip";

// The limit of logits held at once, in bytes, for steps and evaluations: lower where most weights are frozen, as little
// else needs memory there.
int64_t most_logits(const graph::Graph& g, const std::vector<arch::Parameter>& trained);

// The loss of batches with position weights: the sum of `token_loss` [B, T], its one result, times a data input
// "weights" of the same shape.
graph::Graph weighted_loss(graph::Graph token_loss);

// The description of the trained parameters that the pass pipeline needs (graph/pipeline/pipeline.h). Both arguments
// are kept by reference.
graph::Trained on_graph(const std::vector<arch::Parameter>& trained, const Holding& held);

// Results "loss", "norm" (of the unclipped gradients), the other results of the loss graph, and "squares.*". `loss` is
// a graph whose first result is a scalar, the last of its values; when its extents are numbers, wide logits are never
// stored as a whole (graph::differentiate_by_rows). `held`: types of parameters between steps (held.h).
graph::Graph training_step(graph::Graph loss, const std::vector<arch::Parameter>& trained, const Optimizer& optimizer,
                           const Holding& held = {}, const graph::Changes& changes = {});

// The same in two graphs for gradient accumulation: the first adds gradients / `parts` to states "gradient.*" and
// returns "loss" and metrics; the second applies and clears them, returns "norm", and takes parameters as states.
graph::Graph accumulate_step(graph::Graph loss, const std::vector<arch::Parameter>& trained, int parts,
                             const Holding& held = {}, const graph::Changes& changes = {});
graph::Graph apply_step(const std::vector<arch::Parameter>& trained, const Optimizer& optimizer,
                        const Holding& held = {});

// The same for ranks with shards of all parameters (model/train/ranks): the first returns gradients / `parts` as
// results "gradient.*" and has no states; the second takes the global norm as "step.norm", and returns the factor
// "clip".
graph::Graph gradient_step(graph::Graph loss, const std::vector<arch::Parameter>& trained, int parts,
                           const Holding& held = {}, const graph::Changes& changes = {});
graph::Graph apply_parts(const std::vector<arch::Parameter>& parts, const Optimizer& optimizer,
                         const Holding& held = {});

// The same for updates of one or several parameters at a time, with identical bits. The first graph leaves the
// gradients of a batch in states "gradient.*" (where `adds`, it adds gradients / `parts`), and returns the loss, and
// "norm", kClip and "squares.*" of the accumulated gradients. The second applies those of some parameters and reads
// kClip; `clears`: it then sets gradients to 0. Each of its roundings reads its own seed, seed_of_draw(0), .., and with
// salt kFirstSalt draws the numbers that the roundings of all parameters in order draw with kFirstSalt + 0, 1, ..
struct Accumulation {
  int parts = 1;
  bool adds = false;
};
inline constexpr uint32_t kFirstSalt = 1;
std::string seed_of_draw(size_t draw);
graph::Graph gradient_sums_step(graph::Graph loss, const std::vector<arch::Parameter>& trained,
                                const Optimizer& optimizer, const Accumulation& sums, const Holding& held = {},
                                const graph::Changes& changes = {});
graph::Graph group_step(const std::vector<arch::Parameter>& group, const Optimizer& optimizer, bool clears,
                        const Holding& held = {});

}  // namespace lumen::model::recipe

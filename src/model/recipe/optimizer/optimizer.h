// One training step as one graph: forward, loss, gradients, clipping and the optimizer's text, updating parameters and
// states in place. Knows graphs and parameters, not engines or files. Proved by tests/model/train/train_test.cpp
// (finite differences, a scalar AdamW) and tests/model/recipe/optimizer/optimizer_test.cpp.
//
// g = clip * d loss / d p          clip = min(1, max_norm / |all gradients|)
//
// States that are held in a format are decoded, used, and encoded again, parameter by parameter: no state of a whole
// model is ever in f32. Formats of small floats under powers of two are rounded to stochastically.
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

namespace lumen::model {

// Inputs of these graphs besides the loss graph's own: the optimizer's numbers and states (optimizer_rule.h), the seed
// of roundings (held.h), and sums of gradients.
inline constexpr const char* kGradient = "gradient.";  // + parameter
// An input of the second of two graphs where others know the norm of all gradients.
inline constexpr const char* kGivenNorm = "step.norm";
// Results for each parameter: the sum of the squares of its unclipped gradient. They tell where numbers break.
inline constexpr const char* kSquares = "squares.";
// By what gradients are multiplied, so that all of them together are not larger than max_norm.
inline constexpr const char* kClip = "step.clip";

// How many bytes of logits are there at once, in steps and in evaluations: fewer where most weights are frozen, as
// little else takes memory there.
int64_t most_logits(const graph::Graph& g, const std::vector<Parameter>& trained);

// The loss of batches whose positions count differently: the sum of `token_loss` [B, T], its one result, times a data
// input "weights" of the same shape.
graph::Graph weighted_loss(graph::Graph token_loss);

// What the page of all passes asks of whoever trains these parameters (graph/pipeline/pipeline.h). Both are kept by
// reference.
graph::Trained on_graph(const std::vector<Parameter>& trained, const Holding& held);

// Results "loss", "norm" (of the unclipped gradients), what else the loss graph gives, and "squares.*". `loss` is a
// graph whose first result is a number, the last of its values; when its extents are numbers, wide logits are never
// stored whole (graph::differentiate_by_rows). Parameters are held as `held` says between steps (held.h).
graph::Graph training_step(graph::Graph loss, const std::vector<Parameter>& trained, const Optimizer& optimizer,
                           const Holding& held = {}, const graph::Changes& changes = {});

// The same in two graphs for gradient accumulation: the first adds gradients / `parts` to states "gradient.*" and
// returns "loss" and metrics; the second applies and clears them, returns "norm", and takes parameters as states.
graph::Graph accumulate_step(graph::Graph loss, const std::vector<Parameter>& trained, int parts,
                             const Holding& held = {}, const graph::Changes& changes = {});
graph::Graph apply_step(const std::vector<Parameter>& trained, const Optimizer& optimizer, const Holding& held = {});

// The same for ranks that have parts of all parameters (model/train/ranks): the first gives gradients / `parts` as
// results "gradient.*" and keeps nothing; the second takes "step.norm" for the norm of all, and gives the factor
// "clip".
graph::Graph gradient_step(graph::Graph loss, const std::vector<Parameter>& trained, int parts,
                           const Holding& held = {}, const graph::Changes& changes = {});
graph::Graph apply_parts(const std::vector<Parameter>& parts, const Optimizer& optimizer, const Holding& held = {});

// The same for updates that go parameter by parameter, or some at a time, with the same bits. The first graph leaves
// the gradients of a batch in states "gradient.*", adding to them what is a `parts`-th where `adds`, and returns the
// loss, "norm", kClip and "squares.*" of what is there then. The second one applies those of some parameters and reads
// kClip; `clears`: gradients are 0 then. Its roundings read seeds of their own, seed_of_draw(0), .., and draw with salt
// kFirstSalt what the roundings of all parameters, one after another, draw with kFirstSalt, kFirstSalt + 1, ..
struct Accumulation {
  int parts = 1;
  bool adds = false;
};
inline constexpr uint32_t kFirstSalt = 1;
std::string seed_of_draw(size_t draw);
graph::Graph gradient_sums_step(graph::Graph loss, const std::vector<Parameter>& trained, const Optimizer& optimizer,
                                const Accumulation& sums, const Holding& held = {}, const graph::Changes& changes = {});
graph::Graph group_step(const std::vector<Parameter>& group, const Optimizer& optimizer, bool clears,
                        const Holding& held = {});

}  // namespace lumen::model

// A step's loss in parts of one layer each (graph/transform/layers.h), and the graphs that run them: forward, and
// backward, where the layer is computed again or what its forward pass has kept is read. Layers that are alike have
// graphs of one text. Knows graphs, no device.
// Proved by tests/model/train/offload/layer_step_test.cpp.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "graph/keep/passes.h"
#include "graph/transform/layers.h"
#include "model/train/method/method.h"

namespace lumen::model {

// Inputs of these graphs besides those of the parts: what arrives at results of a part, and tensors that are written.
std::string arriving(size_t out);  // gradient of carried_out(out)
std::string kept(size_t out);      // carried_out(out)
std::string leaving(size_t in);    // gradient of carried_in(in)

// The parts of a function without calls, each of whose carried values one other part reads, the next. Error (user)
// where layers hand on more than that: such a family is trained as a whole.
// `instead`: what the user may do then.
graph::LayerCut cut_for_training(const graph::Graph& function, const std::string& who, const std::string& instead);

// The names of a part's parameters in its graph, held as `all` says of the model's.
Holding held_in(const graph::LayerPart& part, const Holding& all);

// For evaluations: writes what the part hands on to kept(i); results that it has stay.
graph::Graph forward_part(const graph::LayerPart& part, const Holding& held);

// The part and its gradients: from arriving(i), or where it has the loss from that, to leaving(i) and "gradient.NAME"
// of the parameters `trained` of its graph, times 1 / parts, which is added to what is there for those in `adds`.
// Results: what the part has, and kSquares + NAME of what is there then. Operands of products are rounded as in a whole
// step.
struct StepPart {
  std::vector<std::string> trained;  // as the part's graph names them
  std::set<std::string> adds;
  int parts = 1;
  int64_t most_logits = 0;  // bytes that are there at once
  bool alone = false;       // somebody else sums: nothing is added, and there are no squares
};
// The passes of a part that hands values on: a forward graph that writes them to kept(i), and a backward graph.
graph::Passes passes_of(const graph::LayerPart& part, const Holding& held, const StepPart& how,
                        const graph::ProductType& products, const graph::Recompute& recompute);
// The part with the loss: both passes in one graph.
graph::Graph last_part(const graph::LayerPart& part, const Holding& held, const StepPart& how,
                       const graph::ProductType& products);
// How these are compiled.
run::CompileOptions part_options(const Method& method);

}  // namespace lumen::model

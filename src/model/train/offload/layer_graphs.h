// A step's loss in parts of one layer each (graph/transform/layers.h), and the graphs that run them: forward, and
// backward, which recomputes the layer or reads the activations that the forward pass kept. Equal layers have graphs of
// the same text. Depends on graphs, not on devices. Proved by tests/model/train/offload/layer_step_test.cpp.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "graph/keep/passes.h"
#include "graph/transform/layers.h"
#include "model/train/method/method.h"

namespace lumen::model::train {

// Inputs of these graphs in addition to those of the parts: gradients that arrive at a part's results, and tensors that
// are written.
std::string arriving(size_t out);  // gradient of carried_out(out)
std::string kept(size_t out);      // carried_out(out)
std::string leaving(size_t in);    // gradient of carried_in(in)

// The parts of a function without calls, where each carried value is read by the next part only. Error (user) for
// layers that carry values further: such a family is trained as a whole. `instead`: the hint's alternative for the
// user.
graph::LayerCut cut_for_training(const graph::Graph& function, const std::string& who, const std::string& instead);

// The types of a part's parameters, by the names in its graph; `all`: those of the model.
recipe::Holding held_in(const graph::LayerPart& part, const recipe::Holding& all);

// For evaluations: writes carried values to kept(i); other results stay.
graph::Graph forward_part(const graph::LayerPart& part, const recipe::Holding& held);

// The part and its gradients: from arriving(i), or from the loss in the last part, to leaving(i) and "gradient.NAME" of
// the parameters `trained` of its graph, times 1 / parts; for those in `adds` it is added to the existing value.
// Results: those of the part, and kSquares + NAME, the sum of squares of the updated gradient. Operands of products are
// rounded as in a whole step.
struct StepPart {
  std::vector<std::string> trained;  // names in the part's graph
  std::set<std::string> adds;
  int parts = 1;
  int64_t most_logits = 0;  // bytes of logits that exist at once
  bool alone = false;       // gradients are summed elsewhere: nothing is added, and there are no squares
};
// The passes of a part with a next one: a forward graph that writes carried values to kept(i), and a backward graph.
graph::Passes passes_of(const graph::LayerPart& part, const recipe::Holding& held, const StepPart& how,
                        const graph::ProductType& products, const graph::Recompute& recompute);
// The part with the loss: both passes in one graph.
graph::Graph last_part(const graph::LayerPart& part, const recipe::Holding& held, const StepPart& how,
                       const graph::ProductType& products);
// Compile options of these graphs.
run::CompileOptions part_options(const Method& method);

}  // namespace lumen::model::train

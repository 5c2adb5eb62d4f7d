// A step's loss in parts of one layer each (graph/transform/layers.h), and the graphs that run them: forward, and
// backward with the layer computed again. Layers that are alike have graphs of one text. Knows graphs, no device.
// Proved by tests/model/train/offload/layer_step_test.cpp.
#pragma once

#include <set>
#include <string>
#include <vector>

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

// Writes what the part hands on to kept(i); results that it has stay.
graph::Graph forward_part(const graph::LayerPart& part, const Holding& held);

// The part once more, and its gradients: from arriving(i), or where it has the loss from that, to leaving(i) and
// "gradient.NAME" of the parameters `trained` of its graph, times 1 / parts, which is added to what is there for those
// in `adds`. Results: what the part has, and kSquares + NAME of what is there then.
struct BackwardPart {
  std::vector<std::string> trained;  // as the part's graph names them
  std::set<std::string> adds;
  int parts = 1;
  int64_t most_logits = 0;  // bytes that are there at once
  bool alone = false;       // somebody else sums: nothing is added, and there are no squares
};
graph::Graph backward_part(const graph::LayerPart& part, const Holding& held, const BackwardPart& how);

}  // namespace lumen::model

// The stages of a graph from its author to kernels (pipeline.cpp): the changes that training and adapters make to a
// model's function, its loss, gradients and the optimizer's updates, the passes, the groups and the memory plan.
//
// May include: graph/fuse, graph/grad, graph/ir, graph/keep, graph/pass, graph/steps, graph/transform.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/fuse/fuse.h"
#include "graph/keep/keep.h"
#include "graph/pass/pass.h"
#include "graph/transform/transform.h"

namespace lumen::graph {

// A transformation of the graph that a higher layer supplies; null: none.
using Stage = std::function<Graph(Graph)>;

// The changes that training and adapters make to a model's function before all other stages.
struct Changes {
  bool texts_apart = false;                      // several sequences are packed in a row (keep_texts_apart)
  std::vector<LowRank> low_rank = {};            // added to weights (add_low_rank)
  std::vector<RoundedSum> sums = {};             // in place of weights (add_rounded_sums)
  std::vector<FormatAssignment> roundings = {};  // of values inside the differentiated function
};
Graph changed(Graph function, const Changes& changes);

// The loss of a changed function for extents that are numbers. `objective` turns the function's results into a loss;
// null: its result is the loss.
Graph loss_graph(Graph function, const Changes& changes, const Bindings& symbols, const Stage& objective);

// Properties of a loss that only the trainer has.
struct Trained {
  Stage hold;                                        // converts parameters to the types they have between steps
  std::function<int64_t(const Graph&)> most_logits;  // bytes of logits in memory at once (differentiate_by_rows)
};

// The graph a trainer makes of a loss: a step, or the sums of gradients of a part of one.
struct TrainingStep {
  std::string name;
  Trained trained;
  std::function<std::vector<ValueId>(const Graph&)> parameters;  // values the loss is differentiated with respect to
  // Appends updates of parameters and states, given the gradients of those values, and results after the loss.
  std::function<void(Graph&, const std::vector<ValueId>& gradients)> update;
};
// `loss`: its first result is a number, the last of its values; more results are metrics. `changes`: those applied to
// it.
Graph training_graph(Graph loss, const Changes& changes, const TrainingStep& step);

// A loss graph, or loss_graph of a function without an objective, as it is evaluated between steps.
Graph evaluation_graph(Graph loss, const Changes& changes, const Trained& trained);

// The first passes of run_pipeline: numeric extents, and rounded operands of products. The result may go through
// run_pipeline again, with empty products and assignments ({}).
Graph with_rounded_products(Graph g, const std::vector<FormatAssignment>& assignments, const Bindings& symbols,
                            const ProductType& products);

// All passes, for a graph that is to be run. `recompute`: for a training step, whose first result is its loss.
Pipeline run_pipeline(Graph g, const std::vector<FormatAssignment>& assignments, const Bindings& symbols,
                      const ProductType& products = {}, const Recompute& recompute = {});

// The same with less memory: no value is hoisted out of a scan's steps, so no product needs memory for all steps at
// once.
Pipeline stepwise_pipeline(Graph g, const std::vector<FormatAssignment>& assignments, const Bindings& symbols,
                           const ProductType& products);

// The last stage, for a graph with numeric dims and no calls: groups, and groups with their memory.
Plan fuse(Graph g);
Pipeline plan_graph(const Graph& g);

}  // namespace lumen::graph

// The whole way of a graph from its author to kernels, on one page (pipeline.cpp): what training and adapters make of a
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

// What a floor above does to a graph on its way; null: nothing.
using Stage = std::function<Graph(Graph)>;

// What training and adapters change of a model's function before anything else is made of it.
struct Changes {
  bool texts_apart = false;                      // several texts share a row (keep_texts_apart)
  std::vector<LowRank> low_rank = {};            // beside weights (add_low_rank)
  std::vector<RoundedSum> sums = {};             // in the place of weights (add_rounded_sums)
  std::vector<FormatAssignment> roundings = {};  // inside what is differentiated
};
Graph changed(Graph function, const Changes& changes);

// The loss of a changed function for extents that are numbers. `objective` makes a loss of what the function gives;
// null: it gives one.
Graph loss_graph(Graph function, const Changes& changes, const Bindings& symbols, const Stage& objective);

// What a trainer knows of a loss and the graph does not.
struct Trained {
  Stage hold;                                        // parameters get the types they are held in between steps
  std::function<int64_t(const Graph&)> most_logits;  // bytes that are there at once (differentiate_by_rows)
};

// What a trainer makes of a loss: a step, or the sums of gradients of a part of one.
struct TrainingStep {
  std::string name;
  Trained trained;
  std::function<std::vector<ValueId>(const Graph&)> parameters;  // values that the loss is differentiated for
  // Appends updates of parameters and states, given the gradients of those values, and results behind the loss.
  std::function<void(Graph&, const std::vector<ValueId>& gradients)> update;
};
// `loss`: its first result is a number, the last of its values; more results are metrics. `changes`: those inside it.
Graph training_graph(Graph loss, const Changes& changes, const TrainingStep& step);

// A loss graph, or what loss_graph makes of a function without an objective, as it is evaluated between steps.
Graph evaluation_graph(Graph loss, const Changes& changes, const Trained& trained);

// The first passes of run_pipeline: to numeric extents, and operands of products as they are rounded. What it gives may
// go there again, with products and assignments as they are ({}).
Graph with_rounded_products(Graph g, const std::vector<FormatAssignment>& assignments, const Bindings& symbols,
                            const ProductType& products);

// All passes, for a graph that is to be run. `recompute`: of a training step, whose first result is its loss.
Pipeline run_pipeline(Graph g, const std::vector<FormatAssignment>& assignments, const Bindings& symbols,
                      const ProductType& products = {}, const Recompute& recompute = {});

// The same where memory is dear: nothing leaves the steps of a scan, so that no product has room for all steps at once.
Pipeline stepwise_pipeline(Graph g, const std::vector<FormatAssignment>& assignments, const Bindings& symbols,
                           const ProductType& products);

// The end of that, for a graph whose dims are numbers, without calls: groups, and groups with their memory.
Plan fuse(Graph g);
Pipeline plan_graph(const Graph& g);

}  // namespace lumen::graph

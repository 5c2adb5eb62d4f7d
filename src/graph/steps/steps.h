// Scans: graphs that run once for each step of a sequence. Passes that rewrite scans from outside, and loop-invariant
// code motion out of them. The body of a scan is an ordinary graph; in_bodies applies other passes to it.
//
// May include: base, graph/ir, graph/match.
// Offers: history.h.
#pragma once

#include <functional>

#include "graph/ir/graph.h"

namespace lumen::graph {

// Applies a pass to the bodies of all scans, innermost first.
void in_bodies(Graph& g, const std::function<void(Graph&)>& pass);
// .. or only to the bodies of the graph's own scans, for a pass that recurses itself.
void in_own_bodies(Graph& g, const std::function<void(Graph&)>& pass);
bool has_scans(const Graph& g);

// Moves values that depend on no carry out of the steps: values computed from constants alone are computed once before
// them, and products of a sequence with a loop-invariant operand become one product for all steps. Only values that
// depend on carries remain. Sums of a product keep their order.
void hoist_steps(Graph& g);

// Scans that have chunks (Op::chunk_) become scans over chunks, each as long as possible, and one over the single steps
// that are left. Numeric dims, no calls. The passes below are for graphs without chunks.
void take_chunks(Graph& g);

// Removes unused results of scans, carries that only feed themselves, duplicate outputs, and operands that no step
// reads; one sequence stays, because it defines the number of steps.
void trim_scans(Graph& g);

// A constant that is decoded before the steps is decoded inside them: products read it in its stored format.
void decode_in_steps(Graph& g);

}  // namespace lumen::graph

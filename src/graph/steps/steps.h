// Scans: graphs that are run once for each step of a sequence. What passes do to them from outside, and what moves out
// of them. What a step computes inside is a graph like others, to which other passes go by in_bodies.
//
// May include: base, graph/ir, graph/match.
// Offers: history.h.
#pragma once

#include <functional>

#include "graph/ir/graph.h"

namespace lumen::graph {

// A pass for the bodies of all scans, innermost first.
void in_bodies(Graph& g, const std::function<void(Graph&)>& pass);
// .. or for those of its own scans alone, for a pass that goes on to theirs itself.
void in_own_bodies(Graph& g, const std::function<void(Graph&)>& pass);
bool has_scans(const Graph& g);

// What does not wait for a carry leaves the steps: what constants alone make is computed once before them, and products
// of a sequence by what no step changes become one product for all steps. Carries are what is left to wait for. Sums of
// a product keep their order.
void hoist_steps(Graph& g);

// Results of scans that nobody reads go, carries that only make themselves, equal outputs, and operands that no step
// reads; a sequence stays, for it has the number of steps.
void trim_scans(Graph& g);

// A constant that is decoded before the steps is decoded in them: products read it as it is stored.
void decode_in_steps(Graph& g);

}  // namespace lumen::graph

// The values a training step keeps between its passes, and those it recomputes instead (activation checkpointing).
//
// May include: base, graph/fuse, graph/ir, graph/match, graph/pass.
// Offers: passes.h.
#pragma once

#include <cstdint>
#include <functional>

#include "graph/fuse/plan.h"
#include "graph/ir/graph.h"

namespace lumen::graph {

struct Recompute {
  enum class What : uint8_t {
    none,
    maps,    // elementwise values that depend on values that are kept anyway
    layers,  // all values that can be recomputed
    fit      // the least that reduces the arena to `bytes`, cheapest first; all if none suffices
  } what = What::none;
  int64_t bytes = 0;
  FormatRef kept = nullptr;  // values that are kept are stored in this format (kept_format.h); null: unchanged
};

// The plan of a graph whose first result is its loss, with values recomputed as `recompute` requires. `plan` makes
// groups and memory of a graph; Recompute::What::fit calls it several times to find the least recomputation that fits.
Pipeline plan_recomputing(const Graph& g, const Recompute& recompute,
                          const std::function<Pipeline(const Graph&)>& plan);

}  // namespace lumen::graph

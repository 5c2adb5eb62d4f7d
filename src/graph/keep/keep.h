// What a training step keeps between its passes, and what it computes again instead.
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
    maps,    // what elementwise kernels make of values that are kept anyway
    layers,  // all that can be
    fit      // as little as brings the arena down to `bytes`, cheapest first; all where nothing does
  } what = What::none;
  int64_t bytes = 0;
  FormatRef kept = nullptr;  // what is not computed again is kept in this format (kept_format.h); null: as it is
};

// The plan of a graph whose first result is its loss, with what the memory asks for computed again. `plan` makes groups
// and memory of a graph; it is asked again and again where as little as fits is computed twice.
Pipeline plan_recomputing(const Graph& g, const Recompute& recompute,
                          const std::function<Pipeline(const Graph&)>& plan);

}  // namespace lumen::graph

#include "graph/keep/keep.h"

#include <algorithm>

#include "graph/keep/kept_format.h"
#include "graph/keep/recompute.h"

namespace lumen::graph {
namespace {

// A layer's part of a step has no loss; there it is not used.
ValueId loss_of(const Graph& g) {
  return g.results.empty() ? -1 : g.results[0];
}

}  // namespace

Pipeline plan_recomputing(const Graph& g, const Recompute& recompute,
                          const std::function<Pipeline(const Graph&)>& plan_kept) {
  if (!is_step(g)) return plan_kept(g);
  const auto plan = [&](const Graph& h) { return plan_kept(keep_in_format(h, loss_of(h), recompute.kept)); };
  if (recompute.what == Recompute::What::none) return plan(g);
  const ValueId loss = loss_of(g);
  if (recompute.what == Recompute::What::maps) return plan(recompute_maps(g, loss));
  std::vector<Stretch> stretches = find_stretches(g, loss);
  if (recompute.what == Recompute::What::layers) return plan(recompute_stretches(g, loss, stretches));
  std::stable_sort(stretches.begin(), stretches.end(),
                   [](const Stretch& a, const Stretch& b) { return a.work * b.bytes < b.work * a.bytes; });
  const auto with = [&](size_t count) {
    return plan(recompute_stretches(g, loss, {stretches.begin(), stretches.begin() + count}));
  };
  // The smallest sufficient number: except for alignment, more recomputation never needs more memory.
  size_t too_few = 0, enough = stretches.size();
  Pipeline best = plan(g);
  if (best.memory.arena_bytes <= recompute.bytes || stretches.empty()) return best;
  best = with(enough);
  while (best.memory.arena_bytes <= recompute.bytes && enough - too_few > 1) {
    const size_t middle = too_few + (enough - too_few) / 2;
    Pipeline half = with(middle);
    if (half.memory.arena_bytes <= recompute.bytes) {
      enough = middle;
      best = std::move(half);
    } else {
      too_few = middle;
    }
  }
  return best;
}

}  // namespace lumen::graph

// group_codes: casts into formats of one byte a number, as values lie and transposed, take in the map of those values
// where nothing else reads it. What formats have above the numbers is at hand (separate_fits), or is found in squares
// of the matrix. Proved by tests/graph/pass/group_codes.txt and tests/graph/fuse_test.cpp.
#include "graph/match/codes.h"

#include <algorithm>

#include "graph/fuse/fuse.h"
#include "graph/match/access.h"
#include "number/facts/record_fit.h"

namespace lumen::graph {

namespace {

// A cast into a format of one byte a number whose fields above the numbers are all at hand, or found in squares.
std::optional<ByteCast> ready_cast(const Graph& g, ValueId v) {
  const auto cast = byte_cast(g, v);
  if (!cast || fitted_square(g, v) > 0) return cast;
  if (g[v].operands.size() != byte_code(*g[v].type.element.format)->fields.size() + 1) return std::nullopt;
  return cast;
}

// The casts that encode `map`, of which v is a view; false where something else reads v.
bool find_codes(const Partition& p, ValueId map, ValueId v, std::vector<ValueId>* casts) {
  const Graph& g = p.graph();
  return std::all_of(p.users()[v].begin(), p.users()[v].end(), [&](ValueId u) {
    if (u < 0) return false;
    if (is_view(g[u].op)) return find_codes(p, map, u, casts);
    const auto cast = ready_cast(g, u);
    if (!cast || cast->source != map) return false;
    casts->push_back(u);
    return true;
  });
}

// A map that casts into bytes alone read, as it lies or transposed, joins them.
void grow_codes(Partition& p, ValueId map) {
  const Graph& g = p.graph();
  if (!p.is_alone(map)) return;
  std::vector<ValueId> casts;
  if (!find_codes(p, map, map, &casts) || casts.empty() || casts.size() > 2) return;
  const auto is_transposed = [&](ValueId cast) { return byte_cast(g, cast)->transposed; };
  if (casts.size() == 2 && is_transposed(casts[0]) == is_transposed(casts[1])) return;
  const bool is_fitted = fitted_square(g, casts[0]) > 0;
  if (is_fitted && g[map].operands.size() != 1) return;
  for (const ValueId c : casts)
    if (g[c].type.element != g[casts[0]].type.element || (fitted_square(g, c) > 0) != is_fitted) return;
  std::vector<ValueId> nodes = casts;
  nodes.push_back(map);
  p.attempt(nodes, {KernelShape::move, casts[0]});
}

}  // namespace

void group_codes(Partition& p) {
  for (ValueId v = 0; v < std::ssize(p.graph().nodes); ++v) {
    if (p.graph()[v].op == Op::map_) grow_codes(p, v);
  }
}

}  // namespace lumen::graph

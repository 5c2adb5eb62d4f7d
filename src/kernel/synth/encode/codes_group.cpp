#include "kernel/synth/encode/codes_group.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "kernel/synth/body/nest.h"

namespace lumen::synth {

CodesGroup::CodesGroup(const graph::Plan& plan, const graph::Group& group) : inner(group) {
  const graph::Graph& g = plan.graph;
  for (const graph::ValueId r : group.results) {
    if (g[r].op == graph::Op::reduce_) {
      extreme = extreme_of = r;
      while (g[extreme_of].op == graph::Op::reduce_) extreme_of = g[extreme_of].operands[0];
      continue;
    }
    const Access a = follow(plan, group, g[r].operands[0]);
    LUMEN_CHECK(a.offset == 0 && (map < 0 || map == a.source));
    map = a.source;
    (a.strides == own_strides_of(extents_of(g[r].type.shape)) ? straight : transposed) = r;
  }
  // The maps and their inputs, without the casts and their supplied fields.
  std::set<graph::ValueId> nodes = {map}, inputs;
  if (extreme >= 0) nodes.insert(extreme_of);
  for (auto v = std::ssize(inner.nodes); v-- > 0;) {
    if (!nodes.contains(inner.nodes[v])) continue;
    for (const graph::ValueId o : g[inner.nodes[v]].operands)
      (std::ranges::binary_search(inner.nodes, o) ? nodes : inputs).insert(o);
  }
  std::erase_if(inner.nodes, [&](graph::ValueId v) { return !nodes.contains(v); });
  std::erase_if(inner.inputs, [&](graph::ValueId v) { return !inputs.contains(v); });
  inner.results = {map};
  shape = extents_of(g[map].type.shape);
  const std::vector<int64_t> matrix = extents_of(g[transposed >= 0 ? transposed : straight].type.shape);
  columns = transposed >= 0 ? matrix[0] : matrix.back();
  rows = product(shape) / columns;
  int64_t behind = 1;
  first_column = shape.size();
  while (first_column > 0 && behind < columns) behind *= shape[--first_column];
  if (behind != columns) first_column = -1;
  LUMEN_CHECK(first_column >= 0 || transposed < 0, "columns of a transposed matrix are no axes");
}

std::vector<bool> CodesGroup::barrier() const {
  std::vector<bool> out(shape.size(), false);
  if (first_column > 0) out[first_column - 1] = true;
  return out;
}

Expr CodesGroup::value(Body& body, Builder& b, const machine::Machine& target) const {
  b.use_fast_math({target.power2, target.reciprocal, ""});
  if (extreme_of >= 0) body.value(extreme_of);
  const Expr x = body.value(map);
  b.use_fast_math({});
  return x;
}

Expr concat_all(Builder& b, std::vector<Expr> parts) {
  while (parts.size() > 1) {
    for (size_t k = 0; k < parts.size() / 2; ++k) parts[k] = b.concat(parts[2 * k], parts[2 * k + 1]);
    parts.resize(parts.size() / 2);
  }
  return parts[0];
}

}  // namespace lumen::synth

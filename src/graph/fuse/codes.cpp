// group_codes: casts into formats of one byte a number, as values lie and transposed, take in the map of those values
// where nothing else reads it. Proved by tests/graph/pass/group_codes.txt and tests/graph/fuse_test.cpp.
#include <algorithm>

#include "graph/fuse/fuse.h"
#include "graph/match/access.h"
#include "number/facts/facts.h"

namespace lumen::graph {

namespace {

// A cast into a format of one byte a number, as its operand lies or transposed.
bool is_byte_cast(const Graph& g, ValueId v) {
  const Node& node = g[v];
  if (node.op != Op::cast_ || !node.type.element.format || node.operands.size() != 1) return false;
  const FieldType* field = plain_field(*node.type.element.format);
  const auto access = affine_access(g, node.operands[0]);
  if (!field || field->bits != 8 || !access || access->offset != 0 || node.type.shape.empty()) return false;
  const Shape &from = g[access->source].type.shape, &to = node.type.shape;
  if (elements(from) != elements(to)) return false;
  if (access->strides == dense_strides_of(extents_of(to))) return true;
  // Transposed: the last axes of the source are the columns, and the first axis here.
  if (to.size() != 2 || access->strides != std::vector<int64_t>{1, to[0].number()}) return false;
  int64_t columns = 1;
  for (size_t d = from.size(); d > 0 && columns < to[0].number(); --d) columns *= from[d - 1].number();
  return columns == to[0].number() && to[0].number() > 1 && to[1].number() > 1;
}

// The casts that read v through views; false where something else does.
bool find_codes(const Partition& p, ValueId v, std::vector<ValueId>* casts) {
  const Graph& g = p.graph();
  return std::all_of(p.users()[v].begin(), p.users()[v].end(), [&](ValueId u) {
    if (u < 0) return false;
    if (is_view(g[u].op)) return find_codes(p, u, casts);
    if (!is_byte_cast(g, u)) return false;
    casts->push_back(u);
    return true;
  });
}

// A map that casts into bytes alone read, as it lies or transposed, joins them.
void grow_codes(Partition& p, ValueId map) {
  const Graph& g = p.graph();
  if (!p.is_alone(map)) return;
  std::vector<ValueId> casts;
  if (!find_codes(p, map, &casts) || casts.empty() || casts.size() > 2) return;
  const auto is_straight = [&](ValueId cast) {
    return affine_access(g, g[cast].operands[0])->strides == dense_strides_of(extents_of(g[cast].type.shape));
  };
  if (casts.size() == 2 && is_straight(casts[0]) == is_straight(casts[1])) return;
  for (const ValueId c : casts)
    if (g[c].type.element != g[casts[0]].type.element) return;
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

// group_windows: the zero padding of an image that a product reads through windows is part of the product, so that
// kernels that copy the image tile by tile write zeros outside of it, and no padded copy of the image is made. Proved
// by tests/graph/pass/group_windows.txt and tests/graph/fuse_test.cpp.
#include <algorithm>

#include "graph/fuse/fuse.h"
#include "graph/match/access.h"

namespace lumen::graph {

namespace {

// The pad below an operand of the product `root`, if it has no other reader; -1: there is none.
ValueId pad_below(const Partition& p, ValueId root, ValueId v) {
  const Graph& g = p.graph();
  const auto is_read_once = [&](ValueId x) { return p.users()[x].size() == 1 && p.users()[x][0] >= 0; };
  bool sees_windows = false;
  for (; is_view(g[v].op); v = g[v].operands[0]) {
    if (!is_read_once(v)) return -1;
    sees_windows = sees_windows || g[v].op == Op::windows_;
  }
  const Type& type = g[v].type;
  const std::vector<int64_t>& steps = g[v].attributes.strides;
  if (!sees_windows || g[v].op != Op::pad_ || !is_read_once(v) || !p.is_alone(v)) return -1;
  if (type.element.format || !is_float(type.element.scalar) || scalar_bytes(type.element.scalar) != 2) return -1;
  if (std::any_of(steps.begin(), steps.end(), [](int64_t s) { return s != 1; })) return -1;
  const ValueId image = read_below(g, g[v].operands[0]);
  const bool is_plain = image >= 0 && image != root && !g[image].type.element.format;
  return is_plain ? v : -1;
}

}  // namespace

void group_windows(Partition& p) {
  for (size_t c = 0; c < p.clusters().size(); ++c) {
    const Cluster& cluster = p.clusters()[c];
    if (cluster.nodes.empty() || cluster.shape != KernelShape::dot) continue;
    const ValueId root = cluster.root;
    if (p.graph()[root].op != Op::contract_) continue;
    for (size_t i = 0; i < 2; ++i) {
      const ValueId pad = pad_below(p, root, p.graph()[root].operands[i]);
      if (pad < 0) continue;
      std::vector<ValueId> nodes = p.around(root).nodes;
      nodes.push_back(pad);
      p.attempt(nodes, {KernelShape::dot, root});
    }
  }
}

}  // namespace lumen::graph

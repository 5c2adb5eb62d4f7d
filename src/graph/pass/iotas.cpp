// narrow_iotas: an iota has one axis above 1, and is broadcast along the others, so that a load of it is an affine
// index. Proved by tests/graph/pass/narrow_iotas.txt.
#include "graph/ir/rewrite.h"
#include "graph/pass/pass.h"

namespace lumen::graph {

void narrow_iotas(Graph& g) {
  Rewriter r(g);
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    const Node& node = g[v];
    if (node.op != Op::iota_) {
      r.keep(v);
      continue;
    }
    Type narrow = node.type;
    for (size_t d = 0; d < narrow.shape.size(); ++d) {
      if (static_cast<int>(d) != node.attributes.axis) narrow.shape[d] = Dim(1);
    }
    const ValueId line = r.build.iota(narrow, node.attributes.axis);
    r.replace(v, narrow == node.type ? line : r.build.broadcast(line, node.type.shape));
    r.keep_label(v);
  }
  g = r.finish();
}

}  // namespace lumen::graph

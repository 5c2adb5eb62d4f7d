// convert_casts: a cast between scalars is a map, so that groups know one kind of elementwise work. Casts into and out
// of formats stay. Proved by tests/graph/pass/convert_casts.txt.
#include "graph/ir/rewrite.h"
#include "graph/match/access.h"
#include "graph/pass/pass.h"

namespace lumen::graph {

void convert_casts(Graph& g) {
  Rewriter r(g);
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    const Node& node = g[v];
    if (node.op != Op::cast_ || node.type.element.format || is_unpack(g, v)) {
      r.keep(v);
      continue;
    }
    r.replace(v, r.build.convert(r[node.operands[0]], node.type.element.scalar));
    r.keep_label(v);
  }
  g = r.finish();
}

}  // namespace lumen::graph

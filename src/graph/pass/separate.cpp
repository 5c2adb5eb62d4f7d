// separate_attention: later uses of an attention's scores, exponentials and probabilities get copies of them,
// recomputed from the row's maximum and sum; the attention then has no other external uses than those two. Exact: the
// copies are the same formulas. Proved by tests/graph/pass/separate_attention.txt and tests/graph/fuse_test.cpp.
#include <set>

#include "graph/ir/rewrite.h"
#include "graph/match/attend.h"
#include "graph/pass/pass.h"

namespace lumen::graph {

void separate_attention(Graph& g) {
  const std::vector<Attention> all = find_attention(g, users_of(g), 0, false);
  std::vector<const Attention*> inside(g.nodes.size(), nullptr);  // values that are copied for later uses
  for (const Attention& a : all) {
    if (!a.is_shared) continue;
    for (ValueId v : a.nodes)
      if (v != a.output && g[v].op != Op::reduce_) inside[v] = &a;
  }
  Rewriter r(g);
  std::set<const Attention*> copied;
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    for (ValueId o : g[v].operands) {
      const Attention* a = inside[o];
      if (!a || v <= a->output || !copied.insert(a).second) continue;
      for (ValueId again : a->nodes)
        if (inside[again]) r.keep(again);
    }
    r.keep(v);
  }
  g = r.finish();
}

}  // namespace lumen::graph

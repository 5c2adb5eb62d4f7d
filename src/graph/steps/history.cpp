#include "graph/steps/history.h"

#include <algorithm>
#include <set>

#include "graph/ir/rewrite.h"
#include "graph/match/uses.h"

namespace lumen::graph {

std::vector<History> histories_of(const Graph& g, ValueId scan, int64_t alignment) {
  const Attributes& a = g[scan].attributes;
  const Graph& body = *a.callee;
  const std::vector<ValueId> inputs = body.inputs();
  std::vector<History> out;
  std::set<int> taken;
  for (int c = 0; c < a.carries; ++c) {
    History h{c,        byte_size(body[inputs[c]].type), g[g[scan].operands[a.carries]].type.shape[0].number(), {}, {},
              a.reverse};
    if (h.bytes % alignment != 0) continue;
    for (int k = a.carries; k < std::ssize(body.results); ++k) {
      if (taken.contains(k)) continue;
      if (body.results[k] == inputs[c])
        h.before.push_back(k);
      else if (body.results[k] == body.results[c])
        h.after.push_back(k);
    }
    if (h.before.empty() && h.after.empty()) continue;
    taken.insert(h.before.begin(), h.before.end());
    taken.insert(h.after.begin(), h.after.end());
    out.push_back(std::move(h));
  }
  return out;
}

Graph with_own_results(const Graph& body, const std::vector<bool>& in_histories) {
  Graph own = body;
  Builder b(own);
  std::set<ValueId> taken;
  for (size_t k = 0; k < own.results.size(); ++k) {
    if (in_histories[k]) continue;
    ValueId& result = own.results[k];
    while (own[result].op == Op::reshape_) result = own[result].operands[0];
    const bool of_scan = own[result].op == Op::scan_ || own[result].op == Op::result_;
    if (!is_compute(own, result) || of_scan || taken.contains(result)) {
      Formula same;
      same.inputs = {b.type(result).element.scalar};
      same.outputs = {same.input(0)};
      result = b.map(std::move(same), {result});
    }
    taken.insert(result);
  }
  return own;
}

}  // namespace lumen::graph

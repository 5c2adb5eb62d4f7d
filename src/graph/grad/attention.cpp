// The gradient of an attention as a whole: o = contract(p, v), p = softmax(s).
//   dv = contract(p, do)      dp = contract(do, v)      ds = p (dp - delta),  delta = sum of do o along o's own axis
// delta equals sum(p dp) over the keys, because o = contract(p, v): it needs no pass over the keys, so the following
// kernels hold at most a block of scores. Proved by tests/graph/grad/grad_test.cpp.
#include "graph/grad/rules.h"

namespace lumen::graph {

void attention_gradient(Reverse& r, const Attention& attention, ValueId d_output) {
  const Node out = r.build.graph[attention.output];
  const ValueId p = attention.probability, v = out.operands[1];
  const std::vector<std::string>& letters = out.attributes.indices;
  if (r.active(v)) r.add(v, r.build.contract(p, d_output, letters[0], letters[2], letters[1]));
  if (!r.active(attention.score)) return;
  const ValueId dp = r.build.contract(d_output, v, letters[2], letters[1], letters[0]);
  int own = -1;
  for (size_t d = 0; d < letters[2].size(); ++d)
    if (letters[0].find(letters[2][d]) == std::string::npos) own = d;
  const ValueId delta = r.build.reduce(r.build.mul(d_output, attention.output), Reduction::sum, {own});
  std::vector<int> axes;  // in the order of the scores, whose last axis is summed
  for (const char c : letters[0]) {
    const size_t at = letters[2].find(c);
    axes.push_back(at == std::string::npos ? own : static_cast<int>(at));
  }
  r.add(attention.score, r.build.mul(p, r.build.sub(dp, r.build.permute(delta, axes))));
}

}  // namespace lumen::graph

#include "graph/equivalence/online_rotation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "graph/equivalence/hadamard.h"
#include "graph/equivalence/propagation.h"
#include "graph/ir/rewrite.h"
#include "graph/pass/pass.h"

namespace lumen::graph {

namespace {

class Inserter {
 public:
  Inserter(const Graph& g, const std::vector<std::string>& weights) : r_(g) {
    for (const std::string& name : weights)
      if (const ValueId v = g.find_input(name); v >= 0) wanted_.insert(v);
  }

  Graph run() {
    std::set<ValueId> reached;
    for (ValueId v = 0; v < std::ssize(r_.from.nodes); ++v) {
      const Node& node = r_.from[v];
      ValueId weight = -1;
      size_t side = 0;  // of x
      if (const WeightProduct p = weight_product(r_.from, v); p.weight >= 0 && !p.transposed) {
        weight = p.weight;
        side = (1 - p.side);
      } else if (node.op == Op::contract_gather_) {
        weight = node.operands[1];
      }
      r_.keep(v);
      if (!wanted_.contains(weight)) continue;
      const char k = node.attributes.indices[1 - side].back();
      if (node.attributes.indices[side].back() != k) continue;
      reached.insert(weight);
      r_.to[r_[v]].operands[side] = -1;  // set below
      Node product = r_.to[r_[v]];
      r_.to.nodes.pop_back();
      product.operands[side] = rotated(node.operands[side]);
      r_.to.nodes.push_back(std::move(product));
      r_.replace(v, std::ssize(r_.to.nodes) - 1);
    }
    for (const ValueId w : wanted_)
      if (!reached.contains(w))
        throw user_error("no product reads columns of '{}': its input cannot be rotated", r_.from[w].attributes.name);
    return r_.finish();
  }

 private:
  ValueId rotated(ValueId x) {
    if (const auto found = known_.find(x); found != known_.end()) return found->second;
    const Shape shape = r_.from[x].type.shape;
    const int64_t width = shape.back().number();
    const std::vector<SignMatrix> factors = hadamard_factors(width);
    Dim rows(1);
    for (size_t d = 0; d + 1 < shape.size(); ++d) rows = rows * shape[d];
    ValueId y = r_[x];
    int64_t outer = 1, inner = width;
    for (const SignMatrix& f : factors) {
      inner /= f.n;
      y = r_.build.reshape(y, {rows, Dim(outer), Dim(f.n), Dim(inner)});
      std::vector<double> values(f.values.begin(), f.values.end());
      for (double& v : values) v /= std::sqrt(f.n);
      const ValueId h = r_.build.constant({{Dim(f.n), Dim(f.n)}, {}}, values);
      y = r_.build.contract(y, h, "roai", "ab", "robi");
      outer *= f.n;
    }
    y = r_.build.reshape(y, shape);
    r_.to[y].label = r_.from[x].label + ".rotated";
    return known_[x] = y;
  }

  Rewriter r_;
  std::set<ValueId> wanted_;
  std::map<ValueId, ValueId> known_;
};

}  // namespace

Graph rotate_inputs(Graph g, const std::vector<std::string>& weights) {
  if (weights.empty()) return g;
  inline_calls(g);
  simplify(g);
  return Inserter(g, weights).run();
}

}  // namespace lumen::graph

// round_products: mixed precision. Operands of products with parameters, forward and backward, are rounded to a short
// float; sums, everything between products, and the parameters themselves stay as they are. Such products have no batch
// letter (one that both operands and the result share); those of attention do and stay. A value is rounded once,
// below its views, however many products read it. Products whose rows pick matrices are such products. Proved by
// tests/graph/round_test.cpp.
#include "base/check.h"
#include "graph/ir/rewrite.h"
#include "graph/pass/pipeline.h"

namespace lumen::graph {

namespace {

bool has_batch_letter(const Node& contract) {
  const std::vector<std::string>& i = contract.attributes.indices;
  for (const char letter : i[2])
    if (i[0].find(letter) != std::string::npos && i[1].find(letter) != std::string::npos) return true;
  return false;
}

class Rounder {
 public:
  Rounder(const Graph& g, Scalar to) : r_(g), to_(to), rounded_(g.nodes.size(), -1) {}

  Graph run() {
    for (ValueId v = 0; v < static_cast<ValueId>(r_.from.nodes.size()); ++v) {
      const Node& node = r_.from[v];
      const bool picks = node.op == Op::contract_gather_ || node.op == Op::contract_scatter_;
      const bool dense = node.op == Op::contract_ && !has_batch_letter(node);
      if ((picks || dense) && is_f32(node.operands[0]) && is_f32(node.operands[1]))
        replace(v);
      else
        r_.keep(v);
    }
    return r_.finish();
  }

 private:
  bool is_f32(ValueId v) const { return r_.from[v].type.element == Element{}; }

  void replace(ValueId v) {
    const Node node = r_.from[v];
    const ValueId a = rounded(node.operands[0]), b = rounded(node.operands[1]);
    const std::vector<std::string>& i = node.attributes.indices;
    if (node.op == Op::contract_)
      r_.replace(v, r_.build.contract(a, b, i[0], i[1], i[2]));
    else if (node.op == Op::contract_gather_)
      r_.replace(v, r_.build.contract_gather(a, b, r_[node.operands[2]], i[0], i[1], i[2]));
    else
      r_.replace(v, r_.build.contract_scatter(a, b, r_[node.operands[2]], i[0], i[1], i[2], i[3], node.type.shape[0]));
    r_.to[r_[v]].label = node.label;
  }

  ValueId rounded(ValueId v) {
    ValueId& known = rounded_[static_cast<size_t>(v)];
    if (known >= 0) return known;
    const Node& node = r_.from[v];
    if (node.op == Op::reshape_)
      known = r_.build.reshape(rounded(node.operands[0]), node.type.shape);
    else if (node.op == Op::permute_)
      known = r_.build.permute(rounded(node.operands[0]), node.attributes.axes);
    else
      known = r_.build.convert(r_[v], to_);
    return known;
  }

  Rewriter r_;
  Scalar to_;
  std::vector<ValueId> rounded_;
};

}  // namespace

void round_products(Graph& g, Scalar to) {
  LUMEN_CHECK(is_float(to), "products of floats");
  if (to != Scalar::f32) g = Rounder(g, to).run();
}

}  // namespace lumen::graph

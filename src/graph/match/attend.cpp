// Finds attention by its structure, independent of how its function was written: see `attend` in graph/fuse/plan.h.
// Proved by tests/graph/fuse_test.cpp.
#include "graph/match/attend.h"

#include <algorithm>
#include <set>

#include "graph/ir/rewrite.h"
#include "graph/match/access.h"

namespace lumen::graph {

namespace {

// A position in the scalar algebra across several maps: node `index` of the formula of map `value`.
struct Spot {
  ValueId value;
  int index;
};

class Matcher {
 public:
  Matcher(const Graph& g, const Users& users, ValueId output) : g_(g), users_(users), output_(output) {}

  std::optional<Attention> match(bool alone) {
    const Node& out = g_[output_];
    const ValueId p = out.operands[0];
    if (g_[p].op != Op::map_ || g_[p].type.shape.empty()) return std::nullopt;
    score_shape_ = g_[p].type.shape;
    if (!collect(p) || !softmax(p) || !letters()) return std::nullopt;
    region_.insert(output_);
    Attention found{output_, p, g_[maximum_].operands[0], maximum_, total_, {region_.begin(), region_.end()}, false};
    for (ValueId v : region_) {
      if (v == output_) continue;
      for (ValueId user : users_[v]) {
        if (region_.contains(user)) continue;
        if (alone || user < output_) return std::nullopt;
        found.is_shared = found.is_shared || (v != maximum_ && v != total_);
      }
    }
    return found;
  }

 private:
  // Collects all nodes between p and the one contract it depends on.
  bool collect(ValueId v) {
    if (region_.contains(v)) return true;
    if (region_.size() > 64) return false;
    const Node& node = g_[v];
    if (node.op == Op::contract_) {
      if (scores_ >= 0 && scores_ != v) return false;
      scores_ = v;
      region_.insert(v);
      return node.type.shape == score_shape_;
    }
    if (node.op == Op::reduce_) {
      ValueId& place = node.attributes.reduction == Reduction::max ? maximum_ : total_;
      const int last = score_shape_.size() - 1;
      if (node.attributes.reduction == Reduction::min || place >= 0 || node.attributes.axes != std::vector<int>{last} ||
          g_[node.operands[0]].type.shape != score_shape_) {
        return false;
      }
      place = v;
      region_.insert(v);
      return is_compute(g_, node.operands[0]) && collect(node.operands[0]);
    }
    if (node.op != Op::map_ || node.type.shape != score_shape_) return false;
    region_.insert(v);
    for (ValueId o : node.operands) {
      // A mask that is computed for this attention alone belongs to the region; other values are read from memory.
      const bool inside = is_compute(g_, o) && (g_[o].op == Op::map_ || depends_on_scores(o));
      if (inside && g_[o].type.shape != score_shape_ && !depends_on_scores(o)) continue;
      if (inside && !collect(o)) return false;
    }
    return true;
  }

  bool depends_on_scores(ValueId v) const { return g_[v].op == Op::reduce_ || g_[v].op == Op::contract_; }

  Spot output_of(ValueId map) const { return {map, g_[map].attributes.formula.outputs[0]}; }
  // Passes from an input of a formula to the map that computes it, as long as that map is no milestone.
  Spot resolve(Spot s) const {
    for (;;) {
      const ScalarNode& n = g_[s.value].attributes.formula.nodes[s.index];
      if (n.op != ScalarOp::input) return s;
      const ValueId operand = g_[s.value].operands[n.index];
      if (g_[operand].op != Op::map_ || operand == g_[maximum_].operands[0]) return s;
      s = output_of(operand);
    }
  }
  bool is_op(Spot s, ScalarOp op) const { return g_[s.value].attributes.formula.nodes[s.index].op == op; }
  Spot argument(Spot s, int k) const {
    return resolve({s.value, g_[s.value].attributes.formula.nodes[s.index].args[k]});
  }
  bool reads(Spot s, ValueId v) const {
    const ScalarNode& n = g_[s.value].attributes.formula.nodes[s.index];
    return n.op == ScalarOp::input && g_[s.value].operands[n.index] == v;
  }
  bool is_exponential(Spot s) const {  // exp(s - m)
    if (!is_op(s, ScalarOp::exp_)) return false;
    const Spot difference = argument(s, 0);
    return is_op(difference, ScalarOp::sub_) && reads(argument(difference, 0), g_[maximum_].operands[0]) &&
           reads(argument(difference, 1), maximum_);
  }

  bool softmax(ValueId p) const {
    if (scores_ < 0 || maximum_ < 0 || total_ < 0) return false;
    const ValueId summed = g_[total_].operands[0];
    if (g_[summed].op != Op::map_ || g_[summed].type.element.scalar != Scalar::f32) return false;
    const Spot quotient = resolve(output_of(p));
    return is_exponential(resolve(output_of(summed))) && is_op(quotient, ScalarOp::div_) &&
           is_exponential(argument(quotient, 0)) && reads(argument(quotient, 1), total_);
  }

  // o sums exactly the last axis of p, keeps all others and adds one new one, and v is a load; the scores sum one
  // letter, and only one of their operands has the keys.
  bool letters() const {
    const Node& out = g_[output_];
    const auto& indices = out.attributes.indices;
    if (out.operands[0] == out.operands[1] || region_.contains(out.operands[1])) return false;
    for (size_t d = 0; d < indices[0].size(); ++d) {
      const bool kept = indices[2].find(indices[0][d]) != std::string::npos;
      if (kept == (d + 1 == indices[0].size())) return false;
    }
    const auto& dot = g_[scores_].attributes.indices;
    const auto absent = [](const std::string& of, const std::string& from) {
      return std::count_if(of.begin(), of.end(), [&](char c) { return from.find(c) == std::string::npos; });
    };
    const bool keys_in_both =
        dot[0].find(dot[2].back()) != std::string::npos && dot[1].find(dot[2].back()) != std::string::npos;
    return absent(indices[1], indices[0]) == 1 && absent(dot[0], dot[2]) == 1 && !keys_in_both;
  }

  const Graph& g_;
  const Users& users_;
  ValueId output_;
  Shape score_shape_;
  std::set<ValueId> region_;
  ValueId scores_ = -1, maximum_ = -1, total_ = -1;
};

}  // namespace

std::vector<Attention> find_attention(const Graph& g, const Users& users, ValueId begin, bool alone) {
  std::vector<Attention> found;
  for (ValueId v = begin; v < std::ssize(g.nodes); ++v) {
    if (g[v].op != Op::contract_) continue;
    if (auto attention = Matcher(g, users, v).match(alone)) found.push_back(*std::move(attention));
  }
  return found;
}

ValueId below_order(const Graph& g, ValueId v) {
  while (g[v].op == Op::reshape_ || g[v].op == Op::permute_) v = g[v].operands[0];
  return v;
}

std::set<ValueId> attention_operands(const Graph& g, const Users& users) {
  std::set<ValueId> operands, values;
  std::vector<Shape> scores;
  for (const Attention& a : find_attention(g, users, 0, false)) {
    scores.push_back(g[a.probability].type.shape);
    values.insert(below_order(g, g[a.output].operands[1]));
    for (const ValueId v : a.nodes)
      if (g[v].op == Op::contract_ && v != a.output)
        for (const ValueId o : g[v].operands) operands.insert(below_order(g, o));
  }
  // The gradient of a probability is the product of a value and an attention operand.
  const std::set<ValueId> known = operands;
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    if (g[v].op != Op::contract_ || std::find(scores.begin(), scores.end(), g[v].type.shape) == scores.end()) continue;
    for (size_t i = 0; i < 2; ++i) {
      const ValueId other = below_order(g, g[v].operands[1 - i]);
      if (values.contains(below_order(g, g[v].operands[i])) && !known.contains(other)) operands.insert(other);
    }
  }
  operands.insert(values.begin(), values.end());
  return operands;
}

}  // namespace lumen::graph

#include "graph/pass/low_rank.h"

#include <map>

#include "base/check.h"
#include "base/error.h"
#include "graph/ir/rewrite.h"
#include "graph/pass/pipeline.h"

namespace lumen::graph {

namespace {

class Adder {
 public:
  Adder(const Graph& g, const std::vector<LowRank>& parts) : r_(g) {
    for (const LowRank& p : parts) {
      const ValueId weight = g.find_input(p.weight);
      if (weight < 0 || g[weight].type.shape.size() != 2 || p.rank < 1)
        throw user_error("'{}' is no matrix that a change of low rank could be added to", p.weight);
      LUMEN_CHECK(!parts_.contains(weight), "two changes of {}", p.weight);
      parts_[weight] = {p};
    }
  }

  Graph run() {
    for (ValueId v = 0; v < static_cast<ValueId>(r_.from.nodes.size()); ++v) {
      r_.keep(v);
      if (const auto part = parts_.find(v); part != parts_.end()) add_inputs(part->second, v);
      const Node& node = r_.from[v];
      if (node.op == Op::contract_) {
        for (const int side : {1, 0}) {
          const auto part = parts_.find(node.operands[static_cast<size_t>(side)]);
          if (part != parts_.end() && !part->second.what.rows) beside_product(part->second, v, side);
        }
      } else if (node.op == Op::gather_) {
        const auto part = parts_.find(node.operands[0]);
        if (part != parts_.end() && part->second.what.rows) beside_rows(part->second, v);
      }
    }
    for (const auto& [weight, part] : parts_) {
      if (!part.used)
        throw user_error("'{}' is not used in a way that a change of low rank could be added to", part.what.weight);
    }
    return r_.finish();
  }

 private:
  struct Part {
    LowRank what;
    ValueId a = -1, b = -1, gain = -1;
    bool used = false;
  };

  void add_inputs(Part& part, ValueId weight) {
    const Shape& shape = r_.from[weight].type.shape;
    const Dim rank(part.what.rank);
    const Shape a = part.what.rows ? Shape{shape[0], rank} : Shape{rank, shape[1]};
    const Shape b = {part.what.rows ? shape[1] : shape[0], rank};
    part.a = r_.build.input(low_rank_a(part.what.weight), Role::parameter, {a, {}});
    part.b = r_.build.input(low_rank_b(part.what.weight), Role::parameter, {b, {}});
    if (part.what.gain) part.gain = r_.build.input(low_rank_gain(part.what.weight), Role::parameter, {Shape{b[0]}, {}});
  }

  // A letter that none of the texts has.
  static char free_letter(const std::vector<std::string>& indices) {
    for (char c = 'a'; c <= 'z'; ++c) {
      bool taken = false;
      for (const std::string& i : indices) taken = taken || i.find(c) != std::string::npos;
      if (!taken) return c;
    }
    LUMEN_CHECK(false, "a product with 26 axes");
    return 0;
  }

  void beside_product(Part& part, ValueId v, int side) {
    const Node node = r_.from[v];
    const std::vector<std::string>& i = node.attributes.indices;
    const std::string& of_weight = i[static_cast<size_t>(side)];
    const std::string& of_x = i[static_cast<size_t>(1 - side)];
    const char n = of_weight[0], k = of_weight[1], r = free_letter(i);
    // Rows of the weight come out and its columns are summed, as in every product W x.
    if (i[2].find(k) != std::string::npos || i[2].find(n) == std::string::npos || of_x.find(n) != std::string::npos)
      return;
    std::string narrow = of_x;
    narrow[narrow.find(k)] = r;
    const ValueId x = r_[node.operands[static_cast<size_t>(1 - side)]];
    const ValueId t = r_.build.contract(x, part.a, of_x, {r, k}, narrow);
    const ValueId d = r_.build.contract(t, part.b, narrow, {n, r}, i[2]);
    finish(part, v, d, i[2].find(n));
  }

  void beside_rows(Part& part, ValueId v) {
    const Node node = r_.from[v];
    const ValueId t = r_.build.gather(part.a, r_[node.operands[1]]);
    std::string narrow;
    for (size_t d = 1; d < node.type.shape.size(); ++d) narrow += static_cast<char>('a' + d);
    const ValueId d = r_.build.contract(t, part.b, narrow + "y", "zy", narrow + "z");
    finish(part, v, d, narrow.size());
  }

  // `axis`: of the result, along which the gain lies.
  void finish(Part& part, ValueId v, ValueId change, size_t axis) {
    ValueId own = r_[v];
    if (part.what.gain) {
      Shape shape = {r_.build.type(part.gain).shape[0]};
      shape.resize(r_.build.type(own).shape.size() - axis, Dim(1));
      own = r_.build.mul(own, r_.build.reshape(part.gain, shape));
    }
    const ValueId sum = r_.build.add(own, change);
    r_.to[sum].label = r_.from[v].label;
    r_.replace(v, sum);
    part.used = true;
  }

  Rewriter r_;
  std::map<ValueId, Part> parts_;
};

}  // namespace

std::string low_rank_a(const std::string& weight) {
  return weight + ".low_rank_a";
}
std::string low_rank_b(const std::string& weight) {
  return weight + ".low_rank_b";
}

std::string low_rank_gain(const std::string& weight) {
  return weight + ".low_rank_gain";
}

Graph add_low_rank(Graph g, const std::vector<LowRank>& parts) {
  if (parts.empty()) return g;
  inline_calls(g);
  simplify(g);  // each use of a weight names it itself
  return Adder(g, parts).run();
}

}  // namespace lumen::graph

#include "graph/transform/rounded_sum.h"

#include <map>

#include "base/check.h"
#include "base/error.h"
#include "graph/ir/rewrite.h"
#include "graph/transform/low_rank_inputs.h"

namespace lumen::graph {

namespace {

class SumAdder {
 public:
  SumAdder(const Graph& g, const std::vector<RoundedSum>& parts) : r_(g) {
    for (const RoundedSum& p : parts) {
      const ValueId weight = low_rank_weight(g, p.change);
      LUMEN_CHECK(!parts_.contains(weight), "two changes of {}", p.change.weight);
      parts_[weight] = p;
    }
  }

  Graph run() {
    for (ValueId v = 0; v < std::ssize(r_.from.nodes); ++v) {
      r_.keep(v);
      if (const auto part = parts_.find(v); part != parts_.end()) replace_by_sum(part->second, v);
    }
    return r_.finish();
  }

 private:
  ValueId parameter(const std::string& name, const Shape& shape) {
    return r_.build.input(name, Role::parameter, {shape, {}});
  }

  void replace_by_sum(const RoundedSum& part, ValueId v) {
    const std::string& name = part.change.weight;
    const Shape shape = r_.from[v].type.shape;
    const auto [a, b] = low_rank_shapes(shape, part.change);
    const ValueId in_a = parameter(low_rank_a(name), a), in_b = parameter(low_rank_b(name), b);
    ValueId sum = low_rank_sum(r_.build, r_[v], in_a, in_b, part.change.scale, part.change.rows);
    if (part.group > 0) sum = in_groups(sum, parameter(group_magnitude(name), group_shape(shape, part.group)));
    r_.to[sum].label = rounded_sum(name);
    r_.replace(v, sum);
  }

  static Shape group_shape(Shape shape, int64_t group) {
    const auto groups = divide(shape.back(), Dim(group));
    if (!groups)
      throw user_error("groups of {} do not divide rows of {}: no magnitudes can be given to them", group,
                       print(Type{{shape.back()}, {}}));
    shape.back() = *groups;
    return shape;
  }

  ValueId in_groups(ValueId sum, ValueId magnitude) {
    const Shape shape = r_.build.type(sum).shape;
    Shape narrow = r_.build.type(magnitude).shape, split = narrow;
    narrow.push_back(Dim(1));
    split.push_back(*divide(shape.back(), split.back()));
    const ValueId scaled = r_.build.mul(r_.build.reshape(sum, split), r_.build.reshape(magnitude, narrow));
    return r_.build.reshape(scaled, shape);
  }

  Rewriter r_;
  std::map<ValueId, RoundedSum> parts_;
};

// (p q) m = p (q m): products of products whose inner result has no other readers.
class Narrower {
 public:
  explicit Narrower(const Graph& g) : r_(g), users_(g.nodes.size()) {
    for (ValueId v = 0; v < std::ssize(g.nodes); ++v)
      for (const ValueId o : g[v].operands) users_[o].push_back(v);
    for (const ValueId v : g.results) users_[v].push_back(-1);
  }

  Graph run() {
    for (ValueId v = 0; v < std::ssize(r_.from.nodes); ++v)
      if (!narrowed(v)) r_.keep(v);
    return r_.finish();
  }

 private:
  static bool has(const std::string& letters, char c) { return letters.find(c) != std::string::npos; }

  // Letters that `outer` sums over on operand `side`, as positions of that operand.
  static std::string summed(const Node& outer, size_t side) {
    std::string letters;
    for (const char c : outer.attributes.indices[side])
      if (!has(outer.attributes.indices[2], c)) letters += c;
    return letters;
  }

  // The operand of `inner` that alone has all letters that `outer` sums over; -1: none.
  int holder(const Node& inner, const Node& outer, size_t side) const {
    const std::string& seen = outer.attributes.indices[side];
    std::string inside;  // the corresponding letters of inner
    for (size_t d = 0; d < seen.size(); ++d)
      if (!has(outer.attributes.indices[2], seen[d])) inside += inner.attributes.indices[2][d];
    if (inside.empty()) return -1;
    for (const int q : {0, 1}) {
      bool alone = true;
      for (const char c : inside)
        alone = alone && has(inner.attributes.indices[q], c) && !has(inner.attributes.indices[1 - q], c);
      if (alone) return q;
    }
    return -1;
  }

  bool is_plain_product(ValueId v) const {
    return r_.from[v].op == Op::contract_ && r_.from[v].type.element == Element{};
  }

  // Every reader is a product that this rewriting makes narrower.
  bool is_only_narrowed(ValueId v) const {
    if (!is_plain_product(v) || r_.from[v].type.shape.size() != 2) return false;
    const auto& users = users_[v];
    if (users.empty()) return false;
    for (const ValueId u : users) {
      if (u < 0 || !is_plain_product(u)) return false;
      const Node& outer = r_.from[u];
      if (outer.operands[0] == outer.operands[1]) return false;
      const size_t side = outer.operands[0] == v ? 0 : 1;
      if (summed(outer, side).size() != 1 || holder(r_.from[v], outer, side) < 0) return false;
      // The result is smaller than the operand.
      const Dim own = elements(r_.from[v].type.shape), result = elements(outer.type.shape);
      if (!own.is_number() || !result.is_number() || 2 * result.number() > own.number()) return false;
    }
    return true;
  }

  bool narrowed(ValueId v) {
    const Node node = r_.from[v];
    if (!is_plain_product(v)) return false;
    for (const size_t side : {size_t{0}, size_t{1}}) {
      const ValueId inner = node.operands[side];
      if (!is_only_narrowed(inner)) continue;
      rewrite(v, node, r_.from[inner], side);
      return true;
    }
    return false;
  }

  // Letters of the inner product are a, b, c, ..; the outer product's own ones follow.
  void rewrite(ValueId v, const Node& outer, const Node& inner, size_t side) {
    std::map<char, char> inner_name, outer_name;
    char next = 'a';
    const auto& ii = inner.attributes.indices;
    for (const std::string& letters : ii)
      for (const char c : letters)
        if (!inner_name.contains(c)) inner_name[c] = next++;
    const std::string& seen = outer.attributes.indices[side];
    for (size_t d = 0; d < seen.size(); ++d) outer_name[seen[d]] = inner_name.at(ii[2][d]);
    for (const std::string& letters : outer.attributes.indices)
      for (const char c : letters)
        if (!outer_name.contains(c)) outer_name[c] = next++;
    LUMEN_CHECK(next <= 'z' + 1, "a product with more than 26 axes");
    const auto renamed = [](const std::string& letters, const std::map<char, char>& names) {
      std::string out;
      for (const char c : letters) out += names.at(c);
      return out;
    };
    const auto q = static_cast<size_t>(holder(inner, outer, side)), p = 1 - q;
    const std::string in_p = renamed(ii[p], inner_name), in_q = renamed(ii[q], inner_name),
                      in_m = renamed(outer.attributes.indices[1 - side], outer_name),
                      result = renamed(outer.attributes.indices[2], outer_name);
    // All letters of q and m that p or the result still has.
    std::string narrow;
    for (const std::string& letters : {in_q, in_m})
      for (const char c : letters)
        if ((has(in_p, c) || has(result, c)) && !has(narrow, c)) narrow += c;
    const ValueId m = r_[outer.operands[1 - side]];
    const ValueId t = r_.build.contract(r_[inner.operands[q]], m, in_q, in_m, narrow);
    const ValueId u = r_.build.contract(r_[inner.operands[p]], t, in_p, narrow, result);
    r_.to[u].label = outer.label;
    r_.replace(v, u);
  }

  Rewriter r_;
  std::vector<std::vector<ValueId>> users_;
};

}  // namespace

std::string rounded_sum(const std::string& weight) {
  return weight + ".sum";
}
std::string group_magnitude(const std::string& weight) {
  return weight + ".group_magnitude";
}

ValueId low_rank_sum(Builder& build, ValueId w, ValueId a, ValueId b, double scale, bool rows) {
  const bool stacked = build.type(w).shape.size() == 3;
  LUMEN_CHECK(!(stacked && rows));
  const ValueId wide = scale == 1 ? b : build.mul(b, build.scalar(scale));
  const ValueId change = stacked ? build.contract(wide, a, "enr", "erk", "enk")
                         : rows  ? build.contract(a, wide, "nr", "kr", "nk")
                                 : build.contract(wide, a, "nr", "rk", "nk");
  return build.add(w, change);
}

Graph add_rounded_sums(Graph g, const std::vector<RoundedSum>& parts) {
  if (parts.empty()) return g;
  return SumAdder(g, parts).run();
}

Graph scale_fields(Graph g, const std::vector<RoundedSum>& parts) {
  std::map<std::string, std::string> magnitudes;  // by the prefix of the fields' names
  for (const RoundedSum& p : parts)
    if (p.group > 0) magnitudes[rounded_sum(p.change.weight)] = group_magnitude(p.change.weight);
  if (magnitudes.empty()) return g;
  Rewriter r(g);
  std::map<std::string, ValueId> known;
  for (ValueId v = 0; v < std::ssize(r.from.nodes); ++v) {
    r.keep(v);
    const Node& node = r.from[v];
    if (node.op != Op::input_) continue;
    known[node.attributes.name] = r[v];
    const size_t dot = node.attributes.name.rfind('.');
    const auto found =
        dot == std::string::npos ? magnitudes.end() : magnitudes.find(node.attributes.name.substr(0, dot));
    if (found == magnitudes.end()) continue;
    const ValueId magnitude = known.at(found->second);
    if (r.build.type(magnitude).shape != node.type.shape)
      throw user_error("'{}' has one value for each of {}, but magnitudes for each of {}", node.attributes.name,
                       print(node.type), print(r.build.type(magnitude)));
    r.replace(v, r.build.mul(r[v], magnitude));
  }
  return r.finish();
}

Graph narrow_gradients(Graph g) {
  return Narrower(g).run();
}

}  // namespace lumen::graph

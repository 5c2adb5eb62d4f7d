#include "graph/transform/low_rank.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "graph/ir/rewrite.h"
#include "graph/match/sign.h"
#include "graph/match/uses.h"
#include "graph/pass/pass.h"
#include "graph/transform/low_rank_inputs.h"

namespace lumen::graph {

namespace {

std::string low_rank_norm(const std::string& weight) {
  return weight + ".low_rank_norm";
}

class Adder {
 public:
  Adder(const Graph& g, const std::vector<LowRank>& parts) : r_(g) {
    for (const LowRank& p : parts) {
      const ValueId weight = low_rank_weight(g, p);
      LUMEN_CHECK(!parts_.contains(weight), "two changes of {}", p.weight);
      parts_[weight] = {p};
    }
  }

  Graph run() {
    for (ValueId v = 0; v < std::ssize(r_.from.nodes); ++v) {
      r_.keep(v);
      if (const auto part = parts_.find(v); part != parts_.end()) add_inputs(part->second, v);
      const std::vector<ValueId>& operands = r_.from[v].operands;
      for (const size_t operand : {1, 0}) {
        const auto part = operand < operands.size() ? parts_.find(operands[operand]) : parts_.end();
        if (part == parts_.end()) continue;
        const LowRankUse use = low_rank_use(r_.from, v, operand);
        if (part->second.what.rows != (use == LowRankUse::rows)) continue;
        if (use == LowRankUse::product) add_to_product(part->second, v, operand);
        if (use == LowRankUse::picked) add_to_picked(part->second, v);
        if (use == LowRankUse::rows) add_to_rows(part->second, v);
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
    ValueId a = -1, b = -1;
    ValueId gain = -1, own = -1;  // of the sum, and of the weight's own output; absent: 1
    bool used = false;
  };

  ValueId input(const std::string& name, Role role, const Shape& shape) {
    return r_.build.input(name, role, {shape, {}});
  }

  void add_inputs(Part& part, ValueId weight) {
    const std::string& name = part.what.weight;
    const Shape shape = r_.from[weight].type.shape;
    const auto [a, b] = low_rank_shapes(shape, part.what);
    const LowRank& what = part.what;
    LUMEN_CHECK(!what.magnitudes || (what.a_name.empty() && what.b_name.empty()), "norms of '{}' by other names", name);
    part.a = input(what.a_name.empty() ? low_rank_a(name) : what.a_name, Role::parameter, a);
    part.b = input(what.b_name.empty() ? low_rank_b(name) : what.b_name, Role::parameter, b);
    const Shape rows = low_rank_rows(shape, part.what.rows);
    if (part.what.gain) part.own = input(low_rank_gain(name), Role::parameter, rows);
    if (!part.what.magnitudes) return;
    part.gain = r_.build.div(input(low_rank_magnitude(name), Role::parameter, rows),
                             input(low_rank_norm(name), Role::data, rows));
  }

  // A letter that none of the index lists has.
  static char free_letter(const std::vector<std::string>& indices) {
    for (char c = 'a'; c <= 'z'; ++c) {
      bool taken = false;
      for (const std::string& i : indices) taken = taken || i.find(c) != std::string::npos;
      if (!taken) return c;
    }
    LUMEN_CHECK(false, "a product with 26 axes");
    return 0;
  }

  ValueId dropped(const LowRank& what, ValueId x) {
    if (what.dropout <= 0) return x;
    if (seed_ < 0) seed_ = r_.build.input(kDropoutSeed, Role::data, {{}, {Scalar::u32, nullptr}});
    const ValueId random = r_.build.random(seed_, what.salt, r_.build.type(x).shape);
    Formula f;
    f.inputs = {Scalar::f32, Scalar::f32};
    const int is_out = f.op(ScalarOp::lt_, f.input(1), f.constant(Scalar::f32, what.dropout));
    const int grown = f.op(ScalarOp::mul_, f.input(0), f.constant(Scalar::f32, 1 / (1 - what.dropout)));
    f.outputs = {f.op(ScalarOp::select_, is_out, f.constant(Scalar::f32, 0), grown)};
    return r_.build.map(std::move(f), {x, random});
  }

  ValueId scaled(const LowRank& what, ValueId narrow) {
    return what.scale == 1 ? narrow : r_.build.mul(narrow, r_.build.scalar(what.scale));
  }

  void add_to_product(Part& part, ValueId v, int side) {
    const Node node = r_.from[v];
    const std::vector<std::string>& i = node.attributes.indices;
    const std::string& of_x = i[1 - side];
    const char n = i[side][0], k = i[side][1], r = free_letter(i);
    std::string narrow = of_x;
    narrow[narrow.find(k)] = r;
    const ValueId x = dropped(part.what, r_[node.operands[1 - side]]);
    const ValueId t = r_.build.contract(x, part.a, of_x, {r, k}, narrow);
    const ValueId d = r_.build.contract(scaled(part.what, t), part.b, narrow, {n, r}, i[2]);
    const auto again = [&] {
      const ValueId w = r_[node.operands[side]];
      return r_.build.contract(side == 0 ? w : x, side == 0 ? x : w, i[0], i[1], i[2]);
    };
    finish(part, v, d, again, [&](ValueId gain) {
      Shape shape = r_.build.type(gain).shape;
      shape.resize(i[2].size() - i[2].find(n), Dim(1));
      return r_.build.reshape(gain, shape);
    });
  }

  void add_to_picked(Part& part, ValueId v) {
    const Node node = r_.from[v];
    const std::vector<std::string>& i = node.attributes.indices;
    const std::string &of_x = i[0], &of_weight = i[1], &of_index = i[2];
    const char e = of_weight[0], n = of_weight[1], k = of_weight[2], r = free_letter(i);
    const ValueId index = r_[node.operands[2]], x = dropped(part.what, r_[node.operands[0]]);
    const ValueId t = r_.build.contract_gather(x, part.a, index, of_x, {e, r, k}, of_index);
    const ValueId d = r_.build.contract_gather(scaled(part.what, t), part.b, index, of_index + r, {e, n, r}, of_index);
    const auto again = [&] {
      return r_.build.contract_gather(x, r_[node.operands[1]], index, of_x, of_weight, of_index);
    };
    finish(part, v, d, again, [&](ValueId gain) {
      // Rows that select no matrix are zeros, so their gain does not matter.
      const ValueId first = r_.build.scalar(0, r_.build.type(index).element.scalar);
      const bool some = !is_never_negative(r_.to, index);
      return r_.build.gather(gain, some ? r_.build.binary(ScalarOp::max_, index, first) : index);
    });
  }

  void add_to_rows(Part& part, ValueId v) {
    const Node node = r_.from[v];
    const ValueId t = scaled(part.what, r_.build.gather(part.a, r_[node.operands[1]]));
    std::string narrow;
    for (size_t d = 1; d < node.type.shape.size(); ++d) narrow += static_cast<char>('a' + d);
    const ValueId d = r_.build.contract(t, part.b, narrow + "y", "zy", narrow + "z");
    const auto again = [&] { return r_[v]; };  // no rows are dropped from a gather
    finish(part, v, d, again, [](ValueId gain) { return gain; });
  }

  // `beside`: broadcasts a number for each row of the weight to the product's result. `again`: the product with its
  // input after dropout.
  // With a dropout d(x), the part that magnitudes add to the weight's own output reads d(x), too, as in the method's
  // code and peft: y = W x + (gain - 1) W d(x) + gain scale B A d(x), at the cost of a second product with W.
  template <typename Again, typename Beside>
  void finish(Part& part, ValueId v, ValueId change, const Again& again, const Beside& beside) {
    const ValueId own = part.own < 0 ? r_[v] : r_.build.mul(r_[v], beside(part.own));
    ValueId sum = -1;
    if (part.gain >= 0 && part.what.dropout > 0 && !part.what.rows) {
      const ValueId gain = beside(part.gain);
      const ValueId more = r_.build.mul(again(), r_.build.sub(gain, r_.build.scalar(1)));
      sum = r_.build.add(r_.build.add(own, more), r_.build.mul(change, gain));
    } else {
      sum = r_.build.add(own, change);
      if (part.gain >= 0) sum = r_.build.mul(sum, beside(part.gain));
    }
    r_.to[sum].label = r_.from[v].label;
    r_.replace(v, sum);
    part.used = true;
  }

  Rewriter r_;
  std::map<ValueId, Part> parts_;
  ValueId seed_ = -1;
};

class NormFiller {
 public:
  NormFiller(const Graph& g, const std::vector<LowRank>& parts) : r_(g) {
    for (const LowRank& p : parts) {
      if (!p.magnitudes) continue;
      if (const ValueId norm = g.find_input(low_rank_norm(p.weight)); norm >= 0) parts_[norm] = p;
    }
  }

  Graph run() {
    for (ValueId v = 0; v < std::ssize(r_.from.nodes); ++v) {
      if (const auto part = parts_.find(v); part != parts_.end())
        r_.replace(v, norm(part->second, r_.from[v].type));
      else
        r_.keep(v);
    }
    return r_.finish();
  }

 private:
  ValueId value(const std::string& name) {
    const ValueId old = r_.from.find_input(name);
    LUMEN_CHECK(old >= 0 && r_[old] >= 0, "{} is no input in front of its norm", name);
    return r_.build.convert(r_[old], Scalar::f32);
  }

  // |W + s B A|^2 of a row = |W|^2 + B (2 s W A^T + s^2 B (A A^T)), row by row.
  ValueId norm(const LowRank& part, const Type& type) {
    Builder& build = r_.build;
    const ValueId w = r_[r_.from.find_input(part.weight)], a = value(low_rank_a(part.weight)),
                  b = value(low_rank_b(part.weight));
    const ValueId squares = build.input(low_rank_squares(part.weight), Role::data, type);
    const bool many = type.shape.size() == 2;
    const auto letters = [&](const char* text) { return many ? "e" + std::string(text) : std::string(text); };
    const ValueId crossed = part.rows ? build.contract(a, w, "kr", "kn", "rn")
                                      : build.contract(a, w, letters("rk"), letters("nk"), letters("rn"));
    const ValueId gram = part.rows ? build.contract(a, a, "kr", "kq", "rq")
                                   : build.contract(a, a, letters("rk"), letters("qk"), letters("rq"));
    const ValueId own = build.contract(b, gram, letters("nr"), letters("rq"), letters("nq"));
    const ValueId transposed = build.permute(crossed, many ? std::vector<int>{0, 2, 1} : std::vector<int>{1, 0});
    Formula f;
    f.inputs = {Scalar::f32, Scalar::f32, Scalar::f32};
    const auto times = [&](int x, double by) { return f.op(ScalarOp::mul_, x, f.constant(Scalar::f32, by)); };
    f.outputs = {
        f.op(ScalarOp::mul_, f.input(0),
             f.op(ScalarOp::add_, times(f.input(1), 2 * part.scale), times(f.input(2), part.scale * part.scale)))};
    const ValueId added = build.reduce(build.map(std::move(f), {b, transposed, own}), Reduction::sum, {-1});
    // Rounding must not make a row of zeros negative, or its gain infinite.
    const ValueId total =
        build.binary(ScalarOp::max_, build.add(squares, build.reshape(added, type.shape)), build.scalar(kLeastSquare));
    return build.unary(ScalarOp::sqrt_, total);
  }

  static constexpr double kLeastSquare = 1e-30;

  Rewriter r_;
  std::map<ValueId, LowRank> parts_;
};

}  // namespace

std::string low_rank_a(const std::string& weight) {
  return weight + ".low_rank_a";
}
std::string low_rank_b(const std::string& weight) {
  return weight + ".low_rank_b";
}
std::string low_rank_magnitude(const std::string& weight) {
  return weight + ".low_rank_magnitude";
}
std::string low_rank_gain(const std::string& weight) {
  return weight + ".low_rank_gain";
}
std::string low_rank_squares(const std::string& weight) {
  return weight + ".low_rank_squares";
}

Shape low_rank_rows(const Shape& weight, bool rows) {
  return rows ? Shape{weight[1]} : Shape(weight.begin(), weight.end() - 1);
}

LowRankUse low_rank_use(const Graph& g, ValueId user, size_t operand) {
  const Node& node = g[user];
  switch (node.op) {
    case Op::contract_: {
      const bool is_matrix = operand < 2 && g[node.operands[operand]].type.shape.size() == 2;
      return is_matrix && reads_columns_of(node, static_cast<int>(operand)) ? LowRankUse::product : LowRankUse::other;
    }
    case Op::contract_gather_:
      return operand == 1 && reads_columns_of(node, 1) ? LowRankUse::picked : LowRankUse::other;
    case Op::gather_:
      return operand == 0 ? LowRankUse::rows : LowRankUse::other;
    default:
      return LowRankUse::other;
  }
}

ValueId low_rank_weight(const Graph& g, const LowRank& change) {
  const ValueId weight = g.find_input(change.weight);
  const size_t axes = weight < 0 ? 0 : g[weight].type.shape.size();
  if ((axes != 2 && (axes != 3 || change.rows)) || change.rank < 1)
    throw user_error("'{}' is no matrix that a change of low rank could be added to", change.weight);
  return weight;
}

std::pair<Shape, Shape> low_rank_shapes(const Shape& weight, const LowRank& change) {
  Shape a = weight, b = weight;
  a[change.rows ? 1 : weight.size() - 2] = Dim(change.rank);
  b.back() = Dim(change.rank);
  if (change.rows) b[0] = weight[1];
  return {a, b};
}

std::map<std::string, LowRankPlaces> low_rank_places(Graph g) {
  inline_calls(g);
  simplify(g);
  std::map<std::string, LowRankPlaces> places;
  const auto is_weight = [&](ValueId v, size_t axes) {
    return g[v].op == Op::input_ && g[v].attributes.role == Role::parameter && g[v].type.shape.size() == axes;
  };
  for (const Node& node : g.nodes) {
    if (node.op == Op::contract_) {
      for (const int side : {1, 0})
        if (const ValueId w = node.operands[side]; is_weight(w, 2) && reads_columns_of(node, side))
          places[g[w].attributes.name].products = true;
    } else if (node.op == Op::contract_gather_) {
      if (const ValueId w = node.operands[1]; is_weight(w, 3) && reads_columns_of(node, 1))
        places[g[w].attributes.name].products = true;
    } else if (node.op == Op::gather_ && is_weight(node.operands[0], 2)) {
      places[g[node.operands[0]].attributes.name].rows = true;
    }
  }
  return places;
}

Graph add_low_rank(Graph g, const std::vector<LowRank>& parts) {
  if (parts.empty()) return g;
  return Adder(g, parts).run();
}

Graph fill_norms(Graph g, const std::vector<LowRank>& parts) {
  const bool any = std::any_of(parts.begin(), parts.end(), [](const LowRank& p) { return p.magnitudes; });
  return any ? NormFiller(g, parts).run() : g;
}

}  // namespace lumen::graph

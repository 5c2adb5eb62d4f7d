// Needs: none. Gradients of every operator and of a transformer equal finite differences in double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "base/error.h"
#include "graph/grad/reverse.h"
#include "graph/ir/text.h"
#include "graph/ir/verify.h"
#include "graph/pipeline/pipeline.h"
#include "tests/graph/blocks.h"

namespace lumen::graph {
namespace {

EvalOptions wide() {
  EvalOptions o;
  o.wide = true;
  return o;
}

// A number that depends on every element of y differently.
ValueId loss_of(Builder& b, ValueId y) {
  const Shape s = b.type(y).shape;
  std::vector<double> weights;
  for (int64_t k = 0; k < elements(s).number(); ++k) weights.push_back(std::sin(1.0 + 0.7 * static_cast<double>(k)));
  std::vector<int> axes;
  for (size_t d = 0; d < s.size(); ++d) axes.push_back(static_cast<int>(d));
  return b.reshape(b.reduce(b.mul(y, b.constant(b.type(y), weights)), Reduction::sum, axes), {});
}

// Compares d loss / d input with central differences, for every float input and (at most) `probes` of its elements.
void check(Graph g, ValueId loss, std::map<std::string, Tensor> in, int probes = 1000, double tolerance = 1e-6) {
  std::vector<ValueId> wanted;
  for (ValueId v : g.inputs()) {
    if (is_float(g[v].type.element.scalar)) wanted.push_back(v);
  }
  const std::vector<ValueId> gradients = differentiate(g, loss, wanted);
  g.results = gradients;
  g.result_names.assign(gradients.size(), "");
  ASSERT_EQ(verify(g), "");
  const std::vector<Tensor> found = eval(g, in, wide());
  g.results = {loss};
  g.result_names = {""};
  simplify(g);  // drops the gradients: faster
  size_t w = 0;
  for (ValueId v : g.inputs()) {
    if (!is_float(g[v].type.element.scalar)) continue;
    const std::string name = g[v].attributes.name;
    std::vector<double>& x = in[name].values;
    double scale = 0;
    for (double d : found[w].values) scale = std::max(scale, std::abs(d));
    const size_t step = std::max<size_t>(1, x.size() / static_cast<size_t>(probes));
    for (size_t k = 0; k < x.size(); k += step) {
      const double keep = x[k], h = 1e-5;
      const auto at = [&](double value) {
        x[k] = value;
        const double l = eval(g, in, wide())[0].values[0];
        x[k] = keep;
        return l;
      };
      // Five points: the error falls with h^4.
      const double slope = (8 * (at(keep + h) - at(keep - h)) - (at(keep + 2 * h) - at(keep - 2 * h))) / (12 * h);
      ASSERT_NEAR(found[w].values[k], slope, tolerance * std::max(scale, 1e-3)) << name << "[" << k << "]";
    }
    ++w;
  }
}

using Make = std::function<ValueId(Builder&, ValueId, ValueId)>;

struct Case {
  const char* name;
  Shape a, b;
  Make make;
};

ValueId indices(Builder& b) {
  return b.constant({{2, 2}, kInt}, {2, 0, 2, 1});
}

// Some pick nothing.
ValueId some_indices(Builder& b) {
  return b.constant({{2, 2}, kInt}, {2, -1, -1, 1});
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"add_broadcast", {2, 3}, {3}, [](Builder& b, ValueId x, ValueId y) { return b.add(x, y); }},
      {"mul_stretch_both", {2, 1, 3}, {4, 1}, [](Builder& b, ValueId x, ValueId y) { return b.mul(x, y); }},
      {"div",
       {2, 3},
       {2, 3},
       [](Builder& b, ValueId x, ValueId y) { return b.div(x, b.add(b.mul(y, y), b.scalar(1))); }},
      {"same_operand_twice",
       {3},
       {3},
       [](Builder& b, ValueId x, ValueId y) { return b.mul(b.mul(x, x), b.add(x, y)); }},
      {"unary_chain",
       {3},
       {3},
       [](Builder& b, ValueId x, ValueId y) {
         return b.mul(b.unary(ScalarOp::tanh_, x), b.unary(ScalarOp::sin_, b.unary(ScalarOp::exp_, y)));
       }},
      {"select",
       {4},
       {4},
       [](Builder& b, ValueId x, ValueId y) { return b.select(b.binary(ScalarOp::lt_, x, y), b.mul(x, x), y); }},
      {"min_max",
       {4},
       {4},
       [](Builder& b, ValueId x, ValueId y) {
         return b.add(b.binary(ScalarOp::max_, x, y), b.binary(ScalarOp::min_, x, b.scalar(0.1)));
       }},
      {"contract", {2, 3}, {4, 3}, [](Builder& b, ValueId x, ValueId y) { return b.contract(x, y, "mk", "nk", "mn"); }},
      {"contract_batch",
       {2, 3, 4},
       {2, 4, 2},
       [](Builder& b, ValueId x, ValueId y) { return b.contract(x, y, "bmk", "bkn", "nbm"); }},
      {"contract_outer", {2}, {3}, [](Builder& b, ValueId x, ValueId y) { return b.contract(x, y, "m", "n", "nm"); }},
      {"contract_dot",
       {3, 2},
       {2, 3},
       [](Builder& b, ValueId x, ValueId y) { return b.contract(x, y, "ij", "ji", ""); }},
      {"contract_lonely",
       {3, 2},
       {3},
       [](Builder& b, ValueId x, ValueId y) { return b.contract(x, y, "ij", "i", "i"); }},
      {"contract_itself",
       {3, 2},
       {1},
       [](Builder& b, ValueId x, ValueId y) { return b.mul(b.contract(x, x, "ik", "jk", "ij"), y); }},
      {"reduce_sum",
       {2, 3, 2},
       {2, 1, 2},
       [](Builder& b, ValueId x, ValueId y) { return b.mul(b.reduce(x, Reduction::sum, {1}), y); }},
      {"reduce_max",
       {3, 4},
       {3, 1},
       [](Builder& b, ValueId x, ValueId y) { return b.mul(b.reduce(x, Reduction::max, {1}), y); }},
      {"reduce_min",
       {3, 4},
       {1, 4},
       [](Builder& b, ValueId x, ValueId y) { return b.mul(b.reduce(x, Reduction::min, {0}), y); }},
      {"gather", {3, 2}, {2, 2, 2}, [](Builder& b, ValueId x, ValueId y) { return b.mul(b.gather(x, indices(b)), y); }},
      {"scatter_add",
       {2, 2, 3},
       {4, 3},
       [](Builder& b, ValueId x, ValueId y) { return b.mul(b.scatter_add(x, indices(b), 4), y); }},
      {"contract_gather",
       {2, 3},
       {4, 5, 3},
       [](Builder& b, ValueId x, ValueId y) { return b.contract_gather(x, y, indices(b), "nk", "efk", "nj"); }},
      {"contract_gather_turned",
       {3, 2, 2},
       {4, 3, 5},
       [](Builder& b, ValueId x, ValueId y) { return b.contract_gather(x, y, indices(b), "kjn", "ekf", "nj"); }},
      {"contract_gather_of_some",
       {2, 3},
       {4, 5, 3},
       [](Builder& b, ValueId x, ValueId y) { return b.contract_gather(x, y, some_indices(b), "nk", "efk", "nj"); }},
      {"contract_scatter_of_some",
       {2, 2, 3},
       {2, 5},
       [](Builder& b, ValueId x, ValueId y) {
         return b.contract_scatter(x, y, some_indices(b), "njf", "nk", "nj", "ekf", 4);
       }},
      {"contract_scatter",
       {2, 2, 3},
       {2, 5},
       [](Builder& b, ValueId x, ValueId y) {
         return b.contract_scatter(x, y, indices(b), "njf", "nk", "nj", "ekf", 4);
       }},
      {"reshape", {2, 6}, {3, 4}, [](Builder& b, ValueId x, ValueId y) { return b.mul(b.reshape(x, {3, 4}), y); }},
      {"permute",
       {2, 3, 4},
       {4, 2, 3},
       [](Builder& b, ValueId x, ValueId y) { return b.mul(b.permute(x, {2, 0, 1}), y); }},
      {"broadcast",
       {3, 1},
       {2, 3, 4},
       [](Builder& b, ValueId x, ValueId y) { return b.mul(b.broadcast(x, {2, 3, 4}), y); }},
      {"slice",
       {4, 7},
       {2, 3},
       [](Builder& b, ValueId x, ValueId y) { return b.mul(b.slice(x, {1, 0}, {2, 3}, {1, 3}), y); }},
      {"pieces",
       {4, 6},
       {4, 1},
       [](Builder& b, ValueId x, ValueId y) {
         const ValueId p = b.slice(x, {0, 0}, {4, 2}), q = b.slice(x, {0, 2}, {4, 4});
         return b.concat({b.mul(q, y), b.mul(p, p)}, 1);
       }},
      {"windows",
       {3, 8},
       {2, 3, 3},
       [](Builder& b, ValueId x, ValueId y) {  // strides 2 and 3 that overlap, read in another order
         return b.mul(b.windows(x, {1, 0}, {1, 0, 0, 0, 2, 3}, {2, 3, 2}), b.slice(y, {0, 0, 0}, {2, 3, 2}, {1, 1, 2}));
       }},
      {"windows_of_windows",
       {2, 10},
       {2, 3},
       [](Builder& b, ValueId x,
          ValueId y) {  // two indices inside a window, one that reads nothing, an axis at one place
         const ValueId v = b.windows(x, {1, 1}, {0, 0, 0, 0, 2, 1, 0, 3}, {3, 2, 2, 2});
         return b.mul(b.mul(v, v), b.reshape(b.reduce(y, Reduction::sum, {0, 1}), {1, 1, 1, 1}));
       }},
      {"windows_alike",
       {2, 8},
       {2, 3},
       [](Builder& b, ValueId x, ValueId y) {
         const ValueId v = b.windows(x, {0, 0}, {1, 0, 0, 0, 2, 1}, {2, 3, 4});
         return b.mul(b.reshape(b.reduce(v, Reduction::sum, {2}), {2, 3}), y);
       }},
      {"convolution",
       {2, 7, 3},
       {4, 3, 3},
       [](Builder& b, ValueId x, ValueId y) {  // stride 2, the window's elements 1 apart
         return b.contract(b.windows(x, {0, 0, 0}, {1, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 1}, {2, 3, 3, 3}), y, "ntic",
                           "oic", "nto");
       }},
      {"convolution_in_two_ways",
       {6, 7, 2},
       {3, 2, 2, 2},
       [](Builder& b, ValueId x, ValueId y) {  // starts, a stride, and elements of the window 2 apart
         const ValueId v = b.windows(x, {1, 0, 0}, {1, 2, 0, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 0, 1}, {3, 2, 3, 2, 2});
         return b.contract(v, y, "hivjc", "oijc", "hvo");
       }},
      {"convolution_by_channel",
       {2, 6, 3},
       {3, 3},
       [](Builder& b, ValueId x, ValueId y) {
         return b.contract(b.windows(x, {0, 0, 0}, {1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1}, {2, 4, 3, 3}), y, "ntic", "ic",
                           "ntc");
       }},
      {"windows_unfolded_beside",
       {6},
       {3},
       [](Builder& b, ValueId x, ValueId y) {  // the window's index stays: no convolution
         return b.contract(b.windows(x, {0}, {1, 1}, {4, 3}), y, "ti", "i", "ti");
       }},
      {"windows_shared",
       {7},
       {5, 2},
       [](Builder& b, ValueId x, ValueId y) {  // the other factor knows the window's place
         return b.contract(b.windows(x, {0}, {1, 1}, {5, 3}), y, "ti", "to", "io");
       }},
      {"pad",
       {2, 3},
       {4, 7},
       [](Builder& b, ValueId x, ValueId y) { return b.mul(b.pad(x, {4, 7}, {1, 0}, {1, 3}), b.mul(y, y)); }},
      {"concat", {2, 3}, {2, 2}, [](Builder& b, ValueId x, ValueId y) { return b.concat({x, y, b.mul(x, x)}, 1); }},
      {"softmax", {2, 4}, {2, 4}, [](Builder& b, ValueId x, ValueId y) { return b.mul(softmax(b, x), y); }},
      {"log_sum_exp",
       {2, 4},
       {2, 1},
       [](Builder& b, ValueId x, ValueId y) {
         const ValueId m = b.reduce(x, Reduction::max, {1});
         const ValueId e = b.reduce(b.unary(ScalarOp::exp_, b.sub(x, m)), Reduction::sum, {1});
         return b.mul(b.add(b.unary(ScalarOp::log_, e), m), y);
       }},
      {"maximum_that_matters",
       {2, 4},
       {2, 1},
       [](Builder& b, ValueId x, ValueId y) {
         const ValueId m = b.reduce(x, Reduction::max, {1});
         return b.mul(b.reduce(b.unary(ScalarOp::exp_, b.sub(x, m)), Reduction::sum, {1}), y);
       }},
      {"rms_norm", {3, 4}, {4}, [](Builder& b, ValueId x, ValueId y) { return rms_norm(b, x, y); }},
      {"double",
       {3},
       {3},
       [](Builder& b, ValueId x, ValueId y) {
         return b.convert(b.mul(b.convert(x, Scalar::f64), b.convert(y, Scalar::f64)), Scalar::f32);
       }},
      {"call",
       {2, 3},
       {3},
       [](Builder& b, ValueId x, ValueId y) {
         auto inner = std::make_shared<Graph>();
         inner->name = "inner";
         Builder i(*inner);
         const ValueId p = i.input("p", Role::data, {{2, 3}, kFloat}), q = i.input("q", Role::data, {{3}, kFloat});
         const ValueId e =
             i.unary(ScalarOp::exp_, i.sub(p, i.reduce(p, Reduction::max, {1})));  // not invariant: leaves the call
         inner->results = {i.mul(i.mul(p, p), q), i.mul(e, q)};
         inner->result_names = {"", ""};
         const ValueId outer = b.call(inner, {x, y});
         const ValueId second = b.call(inner, {outer, b.mul(y, y)});
         return b.add(b.mul(b.result(outer, 0), b.result(outer, 1)), b.result(second, 1));
       }},
  };
  return all;
}

class EveryOperator : public testing::TestWithParam<size_t> {};

TEST_P(EveryOperator, EqualsFiniteDifferences) {
  const Case& c = cases()[GetParam()];
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::parameter, {c.a, kFloat}), y = b.input("y", Role::parameter, {c.b, kFloat});
  const ValueId loss = loss_of(b, c.make(b, x, y));
  const auto in = random_inputs(g, 7 + static_cast<uint32_t>(GetParam()), 3);
  check(g, loss, in);
}

INSTANTIATE_TEST_SUITE_P(Gradient, EveryOperator, testing::Range<size_t>(0, cases().size()),
                         [](const auto& i) { return std::string(cases()[i.param].name); });

// The table above reaches every operator that has a gradient, so that a new operator without a case is noticed.
TEST(Gradient, CasesReachEveryOperator) {
  std::set<Op> reached;
  for (const Case& c : cases()) {
    Graph g;
    Builder b(g);
    const ValueId x = b.input("x", Role::parameter, {c.a, kFloat}), y = b.input("y", Role::parameter, {c.b, kFloat});
    c.make(b, x, y);
    for (const Node& n : g.nodes) reached.insert(n.op);
  }
  for (int op = 0; op < op_count(); ++op) {
    const auto o = static_cast<Op>(op);
    // No gradient; exchanges come behind differentiation.
    const bool none = o == Op::iota_ || o == Op::random_ || o == Op::update_ || o == Op::exchange_;
    // Needs formats: see below; graphs of their own: tests/graph/steps/scan_test.cpp and chunks_test.cpp.
    const bool elsewhere = o == Op::cast_ || o == Op::scan_ || o == Op::chunk_;
    EXPECT_TRUE(reached.contains(o) || none || elsewhere) << op_info(o).name;
  }
}

TEST(Gradient, TiesShareTheGradient) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::parameter, {{4}, kFloat});
  const ValueId loss = b.reshape(b.reduce(x, Reduction::max, {0}), {});
  g.results = differentiate(g, loss, {x});
  g.result_names = {""};
  EXPECT_EQ(eval(g, {{"x", {{{4}, kFloat}, {3, 1, 3, 2}, {}}}})[0].values, (std::vector<double>{0.5, 0, 0.5, 0}));
}

TEST(Gradient, OfWhatDoesNotMatterIsZero) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::parameter, {{2}, kFloat}), y = b.input("y", Role::parameter, {{3}, kFloat});
  const ValueId loss = b.reshape(b.reduce(b.mul(x, x), Reduction::sum, {0}), {});
  g.results = differentiate(g, loss, {y, x});
  g.result_names = {"", ""};
  const auto r = eval(g, {{"x", {{{2}, kFloat}, {3, 1}, {}}}, {"y", {{{3}, kFloat}, {0, 0, 0}, {}}}});
  EXPECT_EQ(r[0].values, (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(r[1].values, (std::vector<double>{6, 2}));
}

TEST(Gradient, LossesOnUpdatesAndShapedLossesAreRefused) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::parameter, {{2}, kFloat}), s = b.input("s", Role::state, {{2}, kFloat});
  const ValueId u = b.update(s, x);
  EXPECT_THROW(differentiate(g, u, {x}), Error);
  const ValueId loss = b.reshape(b.reduce(u, Reduction::sum, {0}), {});
  EXPECT_THROW(differentiate(g, loss, {x}), Error);
}

TEST(Gradient, TransformerEqualsFiniteDifferences) {
  Graph g;
  Builder b(g);
  const BlockSizes z;
  const ValueId loss = transformer(b, z);
  check(g, loss, random_inputs(g, 3, z.vocabulary), 12);
}

// What makes a gradient graph cheap, counted: no transposes are materialised, softmax and cross entropy need no
// gradient of their maximum, and every product has exactly two more in the backward pass.
TEST(Gradient, GraphIsLean) {
  Graph g;
  Builder b(g);
  const ValueId loss = transformer(b, {});
  std::vector<ValueId> wanted;
  for (ValueId v : g.inputs()) {
    if (g[v].attributes.role == Role::parameter) wanted.push_back(v);
  }
  g.results = differentiate(g, loss, wanted);
  g.result_names.assign(wanted.size(), "");
  simplify(g);
  const auto count = [&](Op op) {
    return std::count_if(g.nodes.begin(), g.nodes.end(), [&](const Node& n) { return n.op == op; });
  };
  EXPECT_EQ(count(Op::contract_), 10 * 3);
  EXPECT_EQ(count(Op::permute_), 1) << "the sums that stand for an attention's rows, one for each row of scores";
  EXPECT_EQ(count(Op::broadcast_), 0);
  const auto equalities = std::count_if(g.nodes.begin(), g.nodes.end(), [](const Node& n) {
    return n.op == Op::map_ && std::any_of(n.attributes.formula.nodes.begin(), n.attributes.formula.nodes.end(),
                                           [](const ScalarNode& s) { return s.op == ScalarOp::eq_; });
  });
  EXPECT_EQ(equalities, 1) << "only the targets are compared; the maxima need no gradient";
}

}  // namespace
}  // namespace lumen::graph

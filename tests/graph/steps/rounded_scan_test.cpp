// Needs: none. Recipes in the steps of scans: operands of products pass through formats there, forward and backward, as
// they do in the same steps written out; what is known before the numbers is known of all steps.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.h"
#include "graph/grad/reverse.h"
#include "graph/ir/build.h"
#include "graph/ir/eval.h"
#include "graph/ir/rewrite.h"
#include "graph/ir/text.h"
#include "graph/ir/verify.h"
#include "graph/match/access.h"
#include "graph/pass/learned_scales.h"
#include "graph/pass/pass.h"
#include "graph/pipeline/pipeline.h"
#include "graph/steps/steps.h"
#include "number/library/library.h"

namespace lumen::graph {
namespace {

constexpr int64_t kSteps = 16, kBatch = 16, kIn = 16, kWidth = 32;

const FormatLibrary& library() {
  static const FormatLibrary all = FormatLibrary::builtin();
  return all;
}

ProductType formats(const std::string& activation, const std::string& weight, const std::string& gradient,
                    Scalar scalar = Scalar::f32) {
  ProductType type = scalar;
  type.formats.fill({library().get(activation), library().get(weight), library().get(gradient)});
  return type;
}

// h' = tanh(h u + x w), of which x w is given.
ValueId cell(Builder& b, ValueId h, ValueId xw, ValueId u) {
  return b.unary(ScalarOp::tanh_, b.add(b.contract(h, u, "bk", "nk", "bn"), xw));
}

struct Inputs {
  ValueId h, x, w, u, c;
  explicit Inputs(Builder& b, const Dim& steps = kSteps)
      : h(b.input("h", Role::data, {{kBatch, kWidth}, {}})),
        x(b.input("x", Role::data, {{steps, kBatch, kIn}, {}})),
        w(b.input("w", Role::parameter, {{kWidth, kIn}, {}})),
        u(b.input("u", Role::parameter, {{kWidth, kWidth}, {}})),
        c(b.input("c", Role::data, {{steps, kBatch, kWidth}, {}})) {}
};

// loss = sum(c * states), its gradients by h, x, w and u.
void add_loss(Graph& g, const Inputs& in, ValueId states) {
  Builder b(g);
  const ValueId loss = b.reshape(b.reduce(b.mul(states, in.c), Reduction::sum, {0, 1, 2}), {});
  g.results = {loss};
  for (const ValueId d : differentiate(g, loss, {in.h, in.x, in.w, in.u})) g.results.push_back(d);
  g.result_names = {"loss", "dh", "dx", "dw", "du"};
}

Graph looped(bool with_gradients = true) {
  auto body = std::make_shared<Graph>();
  {
    Builder b(*body);
    const ValueId h = b.input("h", Role::data, {{kBatch, kWidth}, {}}),
                  x = b.input("x", Role::data, {{kBatch, kIn}, {}}), w = b.input("w", Role::data, {{kWidth, kIn}, {}}),
                  u = b.input("u", Role::data, {{kWidth, kWidth}, {}});
    body->name = "cell";
    body->results = {cell(b, h, b.contract(x, w, "bi", "ni", "bn"), u)};
    body->results.push_back(body->results[0]);
    body->result_names = {"", ""};
  }
  Graph g;
  Builder b(g);
  const Inputs in(b);
  const ValueId states = b.result(b.scan(body, {in.h, in.x, in.w, in.u}, 1, 1), 1);
  if (with_gradients) {
    g.results = {states};
    g.result_names = {"states"};
    hoist_steps(g);
    const ValueId all = g.results[0];
    Inputs now = in;
    for (auto& [v, name] : std::vector<std::pair<ValueId*, const char*>>{
             {&now.h, "h"}, {&now.x, "x"}, {&now.w, "w"}, {&now.u, "u"}, {&now.c, "c"}})
      *v = g.find_input(name);
    add_loss(g, now, all);
    return g;
  }
  g.results = {b.reshape(b.reduce(b.mul(states, in.c), Reduction::sum, {0, 1, 2}), {})};
  g.result_names = {"loss"};
  return g;
}

Graph written_out() {
  Graph g;
  Builder b(g);
  const Inputs in(b);
  const ValueId xw = b.contract(in.x, in.w, "tbi", "ni", "tbn");  // as where steps are a loop
  ValueId h = in.h;
  std::vector<ValueId> all;
  for (int64_t t = 0; t < kSteps; ++t) {
    h = cell(b, h, b.reshape(b.slice(xw, {t, 0, 0}, {1, kBatch, kWidth}), {kBatch, kWidth}), in.u);
    all.push_back(b.reshape(h, {1, kBatch, kWidth}));
  }
  add_loss(g, in, b.concat(all, 0));
  return g;
}

std::map<std::string, Tensor> inputs_of(const Graph& g) {
  std::map<std::string, Tensor> out;
  for (const ValueId v : g.inputs()) {
    std::mt19937 random(g[v].attributes.name.front());
    std::normal_distribution<float> number(0, g[v].attributes.role == Role::parameter ? 0.2F : 1.0F);
    Tensor t{g[v].type, {}, {}};
    t.values.resize(elements(t.type.shape).number());
    for (double& x : t.values) x = number(random);
    if (g[v].attributes.name.starts_with("optimizer.")) t.values.assign(t.values.size(), 0);
    if (g[v].type.element.scalar == Scalar::u32) t.values = {7};
    out[g[v].attributes.name] = t;
  }
  return out;
}

std::vector<Tensor> rounded_results(Graph g, const ProductType& type) {
  g = with_rounded_products(std::move(g), {}, {}, type);
  EXPECT_EQ(verify(g), "");
  return eval(g, inputs_of(g));
}

// Products of a graph, and those of the bodies of its scans; how many multiply codes of a format on both sides.
struct Counted {
  int products = 0, coded = 0, stored = 0;
};
Counted count(const Graph& g) {
  Counted out;
  const auto is_code = [&](ValueId v) {
    while (is_view(g[v].op)) v = g[v].operands[0];
    return g[v].op == Op::cast_ && g[g[v].operands[0]].type.element.format;
  };
  for (const Node& node : g.nodes) {
    if (node.op == Op::contract_) {
      out.products += 1;
      out.coded += is_code(node.operands[0]) && is_code(node.operands[1]);
    }
    if (node.op != Op::scan_) continue;
    for (const ValueId v : node.operands) out.stored += g[v].type.element.format != nullptr;
    const Counted inside = count(*node.attributes.callee);
    out.products += inside.products;
    out.coded += inside.coded;
  }
  return out;
}

TEST(RoundedScan, AllProductsMultiplyCodesAndStepsReadWeightsAsTheyAreStored) {
  for (const char* name : {"int8_row", "fp8_tensor", "fp8_e4m3", "mxfp8_e4m3"}) {
    SCOPED_TRACE(name);
    const Graph g = with_rounded_products(looped(), {}, {}, formats(name, name, name));
    const Counted c = count(g);
    EXPECT_EQ(c.products, 6) << print(g);  // x w, h u; the gradients of both operands of each
    EXPECT_EQ(c.coded, c.products) << print(g);
    EXPECT_EQ(c.stored, 2) << print(g);  // u, forward and backward
  }
}

// The numbers of the steps written out: the loss, and gradients that no sum over steps is part of. That of a weight is
// one product over all steps here, whose operands are encoded as one.
TEST(RoundedScan, NumbersAreThoseOfStepsWrittenOut) {
  ProductType one = Scalar::f32, turned = formats("fp8_row", "fp8_row", "fp8_row");
  one.formats[0] = {library().get("int8_row"), library().get("fp8_tile"), nullptr};
  turned.rotations = {16, 16, 0};
  const auto written = written_out();
  // 16 bits as they are: of steps written out, what lies between products would be held in them, too.
  const std::vector<std::pair<ProductType, ProductType>> cases = {
      {Scalar::bf16, formats("bf16", "bf16", "bf16")},
      {formats("int8_row", "int8_row", "int8_row"), formats("int8_row", "int8_row", "int8_row")},
      {formats("fp8_tensor", "fp8_tensor", "fp8_e5m2_tensor"), formats("fp8_tensor", "fp8_tensor", "fp8_e5m2_tensor")},
      {formats("fp8_e4m3", "fp8_e4m3", "fp8_e5m2"), formats("fp8_e4m3", "fp8_e4m3", "fp8_e5m2")},
      {formats("int8_row", "fp8_tile", "fp8_e5m2_row"), formats("int8_row", "fp8_tile", "fp8_e5m2_row")},
      {one, one},
      {turned, turned}};
  for (size_t which = 0; which < cases.size(); ++which) {
    SCOPED_TRACE(which);
    const auto a = rounded_results(looped(), cases[which].first), b = rounded_results(written, cases[which].second);
    const auto plain = eval(looped(), inputs_of(looped()));
    for (size_t i = 0; i < a.size(); ++i) {
      double size = 0, away = 0, moved = 0;
      for (size_t k = 0; k < a[i].values.size(); ++k) {
        size = std::max(size, std::abs(b[i].values[k]));
        away = std::max(away, std::abs(a[i].values[k] - b[i].values[k]));
        moved = std::max(moved, std::abs(a[i].values[k] - plain[i].values[k]));
      }
      EXPECT_LE(away, (i < 2 ? 1e-5 : 0.2) * size) << i;
      EXPECT_GT(moved, 1e-5 * size) << i << ": nothing was rounded";
    }
  }
}

// One scale for all steps, of the largest that any of them had.
TEST(RoundedScan, HistoriesFollowTheLargestOfAllSteps) {
  for (const char* name : {"fp8_tensor", "fp8_e4m3"}) {
    SCOPED_TRACE(name);
    ProductType type = formats(name, name, name);
    type.sources = {FieldSource::delayed, FieldSource::delayed, FieldSource::delayed, 4};
    Graph g = with_rounded_products(looped(), {}, {}, type);
    ASSERT_EQ(verify(g), "") << print(g);
    std::set<std::string> histories;
    for (const ValueId v : g.inputs())
      if (g[v].attributes.name.starts_with(kHistoryState))
        histories.insert(g[v].attributes.name.substr(std::string(kHistoryState).size()));
    // What both products of a step are given gradients of is one value.
    EXPECT_EQ(histories, (std::set<std::string>{"u.activation", "u.weight", "u.gradient", "w.activation", "w.weight"}))
        << print(g);
    auto in = inputs_of(g);
    std::map<std::string, Tensor> states;
    (void)eval(g, in, {}, &states);
    double most = 0;
    for (const double x : in.at("h").values) most = std::max(most, std::abs(x));  // states behind it are below 1
    EXPECT_EQ(states.at(std::string(kHistoryState) + "u.activation").values.back(), most);
    for (const std::string& history : histories) {
      in[kHistoryState + history] = states.at(kHistoryState + history);
      EXPECT_GT(states.at(kHistoryState + history).values.back(), 0) << history;
    }
    const Tensor first = eval(g, in)[0];
    for (double& x : in.at(std::string(kHistoryState) + "u.activation").values) x *= 64;
    EXPECT_NE(eval(g, in)[0].values, first.values) << "steps do not read the scale";
  }
}

TEST(RoundedScan, BoundsOfWeightsReachTheSteps) {
  ProductType type = formats("fp8_row", "fp8_tensor", "fp8_row");
  type.sources.weight = FieldSource::predicted;
  Graph g = with_rounded_products(looped(), {}, {}, type);
  auto in = inputs_of(g);
  const std::string name = std::string(kLargestState) + "u";
  ASSERT_TRUE(in.contains(name)) << print(g);
  in.at(name).values = {1};
  const Tensor one = eval(g, in)[0];
  in.at(name).values = {300};
  EXPECT_NE(eval(g, in)[0].values, one.values);
}

// Steps that see the same numbers round them to either side.
TEST(RoundedScan, EveryStepDrawsItsOwn) {
  auto body = std::make_shared<Graph>();
  {
    Builder b(*body);
    const ValueId h = b.input("h", Role::data, {{kBatch, kWidth}, {}}), n = b.input("n", Role::data, {{}, {}}),
                  u = b.input("u", Role::data, {{kWidth, kWidth}, {}});
    body->results = {h, b.contract(b.add(h, b.mul(n, b.scalar(0))), u, "bk", "nk", "bn")};
    body->result_names = {"", ""};
  }
  Graph g;
  Builder b(g);
  const ValueId h = b.input("h", Role::data, {{kBatch, kWidth}, {}}), n = b.input("n", Role::data, {{kSteps}, {}}),
                u = b.input("layers.2.u", Role::parameter, {{kWidth, kWidth}, {}});
  g.results = {b.result(b.scan(body, {h, n, u}, 1, 1), 1)};
  g.result_names = {"y"};
  ProductType type = formats("int8_row", "int8_row", "int8_row");
  type.random.activation = type.random.weight = true;
  round_products(g, type);
  ASSERT_EQ(verify(g), "");
  EXPECT_GE(g.find_input(std::string(kProductSeed) + ".2"), 0);
  auto in = inputs_of(g);
  const auto y = eval(g, in)[0].values;
  const size_t step = kBatch * kWidth;
  for (size_t t = 1; t < kSteps; ++t)
    EXPECT_FALSE(std::equal(y.begin(), y.begin() + step, y.begin() + t * step)) << "step " << t << " drew as the first";
  EXPECT_EQ(eval(g, in)[0].values, y);
  in.at(std::string(kProductSeed) + ".2").values = {8};
  EXPECT_NE(eval(g, in)[0].values, y);
}

TEST(RoundedScan, ScansInScans) {
  const Graph inner = looped(false);
  auto body = std::make_shared<Graph>(inner);
  // The loss of the inner one, carried: every step of the outer one adds its own, of the same weights.
  Builder b(*body);
  const ValueId before = b.input("sum", Role::data, {{}, {}});
  body->results = {b.add(before, body->results[0])};
  body->name = "outer";
  for (Node& n : body->nodes) n.attributes.role = Role::data;
  // Inputs in the order of the scan's operands: the carry first.
  Graph ordered;
  Rewriter r(*body);
  r.keep(before);
  for (const ValueId v : body->inputs())
    if (v != before && (*body)[v].attributes.name == "x") r.keep(v);
  for (const char* name : {"h", "w", "u", "c"}) r.keep(body->find_input(name));
  for (ValueId v = 0; v < std::ssize(body->nodes); ++v)
    if (r[v] < 0) r.keep(v);
  ordered = r.finish();
  Graph g;
  Builder o(g);
  const Inputs in(o);
  const ValueId many = o.input("many", Role::data, {{2, kSteps, kBatch, kIn}, {}});
  g.results = {o.scan(std::make_shared<const Graph>(ordered), {o.scalar(0), many, in.h, in.w, in.u, in.c}, 1, 1)};
  g.result_names = {"loss"};
  for (const bool delayed : {false, true}) {
    ProductType type = formats("fp8_tensor", "fp8_tensor", "fp8_tensor");
    if (delayed) type.sources = {FieldSource::delayed, FieldSource::delayed, FieldSource::delayed, 2};
    Graph rounded = with_rounded_products(g, {}, {}, type);
    EXPECT_EQ(verify(rounded), "") << print(rounded);
    const Counted c = count(rounded);
    EXPECT_EQ(c.products, 2);
    EXPECT_EQ(c.coded, 2) << print(rounded);
    auto given = inputs_of(rounded);
    const double once = eval(rounded, given)[0].values[0], plain = eval(g, given)[0].values[0];
    EXPECT_NE(once, plain);
    EXPECT_NEAR(once, plain, 0.1 * std::abs(plain));
    if (delayed) {
      EXPECT_TRUE(given.contains(std::string(kHistoryState) + "u.activation")) << print(rounded);
    }
  }
}

TEST(RoundedScan, LearnedScalesAreRefused) {
  ProductType type = formats("int8", "int8_row", "int8");
  type.sources.weight = FieldSource::learned;
  std::vector<LearnedScale> scales;
  try {
    (void)learn_scales(looped(false), type, false, &scales);
    FAIL() << "a scale in a scan was learned";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(".weight_scale'"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace lumen::graph

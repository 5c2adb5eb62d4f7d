// Needs: none. Formats on the values of a graph: stored and fake, through passes, plans and gradients.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "blocks.h"
#include "graph/grad/reverse.h"
#include "graph/ir/text.h"
#include "graph/ir/verify.h"
#include "graph/pipeline/pipeline.h"
#include "number/codec/codec.h"
#include "number/gradient/gradient.h"
#include "number/library/library.h"
#include "plan_run.h"

namespace lumen::graph {
namespace {

const FormatLibrary& library() {
  static const FormatLibrary all = FormatLibrary::builtin();
  return all;
}

// y = x w^T over rows of 64, w updated by a step against its gradient.
Graph product(bool with_update) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{3, 64}, kFloat}),
                w = b.input("layer.w", Role::parameter, {{4, 64}, kFloat});
  const ValueId y = b.contract(x, w, "mk", "nk", "mn");
  g[y].label = "product";
  g.results = {y};
  g.result_names = {"y"};
  if (with_update) {
    const ValueId u = b.update(w, b.mul(w, b.scalar(0.5)));
    g.results.push_back(u);
    g.result_names.push_back("w");
  }
  return g;
}

Tensor packed(const FormatRef& f, const Tensor& t) {
  const std::vector<float> x(t.values.begin(), t.values.end());
  const int64_t columns = t.type.shape.back().number(), rows = static_cast<int64_t>(x.size()) / columns;
  return {{t.type.shape, {Scalar::f32, f}}, {}, encode(*f, x, rows, columns)};
}

TEST(Assign, StoredParametersAreDecodedWhereTheyAreRead) {
  const FormatRef f = library().get("q4_0");
  Graph g = product(false);
  auto in = random_inputs(g, 1, 2);
  const Graph plain = g;
  assign_formats(g, {{FormatAssignment::What::stored, "layer.*", f, FieldSource::fitted}});
  ASSERT_EQ(verify(g), "");
  EXPECT_EQ(print(g[g.find_input("layer.w")].type), "tensor<4x64xq4_0>");
  const Tensor w = packed(f, in["layer.w"]);
  const std::vector<float> decoded = decode(*f, w.blob, 4, 64);
  in["layer.w"].values.assign(decoded.begin(), decoded.end());
  const auto expected = eval(plain, in);
  in["layer.w"] = w;
  EXPECT_EQ(eval(g, in)[0].values, expected[0].values);

  const Pipeline p = run_pipeline(plain, {{FormatAssignment::What::stored, "layer.w", f, FieldSource::fitted}}, {});
  ASSERT_EQ(p.plan.groups.size(), 1u) << "the product unpacks its operand itself";
  EXPECT_EQ(p.plan.groups[0].shape, KernelShape::dot);
  const PlanRun run = run_plan(p.plan, p.memory, in);
  EXPECT_EQ(run.wrong, "");
  EXPECT_EQ(run.results[0].values, expected[0].values);
}

TEST(Assign, FakeParametersPassThroughTheFormat) {
  const FormatRef f = library().get("q8_0");
  Graph g = product(true);
  auto in = random_inputs(g, 2, 2);
  const Graph plain = g;
  assign_formats(g, {{FormatAssignment::What::fake, "layer.w", f, FieldSource::fitted}});
  ASSERT_EQ(verify(g), "");
  std::map<std::string, Tensor> states;
  const auto r = eval(g, in, {}, &states);
  const std::vector<float> rounded = decode(*f, packed(f, in["layer.w"]).blob, 4, 64);
  auto fake_in = in;
  fake_in["layer.w"].values.assign(rounded.begin(), rounded.end());
  std::map<std::string, Tensor> expected_states;
  const auto expected = eval(plain, fake_in, {}, &expected_states);
  EXPECT_EQ(r[0].values, expected[0].values);
  EXPECT_EQ(states["layer.w"].values, expected_states["layer.w"].values);

  const Plan plan = fuse(g);
  const PlanRun run = run_plan(plan, plan_memory(plan), in);
  EXPECT_EQ(run.wrong, "");
  EXPECT_EQ(run.results[0].values, r[0].values);
}

TEST(Assign, StatesKeepTheirFormatThroughUpdates) {
  const FormatRef f = library().get("q8_0");
  Graph g;
  Builder b(g);
  const ValueId cache = b.input("cache", Role::state, {{1, 4, 32}, kFloat}), at = b.input("at", Role::data, {{}, kInt});
  const ValueId row = b.input("row", Role::data, {{1, 1, 32}, kFloat});
  const ValueId zero = b.scalar(0, Scalar::i32);
  const ValueId next = b.update(cache, row, {zero, at, zero});
  g.results = {b.contract(row, next, "xtd", "xsd", "xts"), next};
  g.result_names = {"scores", "cache"};
  auto in = random_inputs(g, 3, 4);
  in["cache"] = packed(f, in["cache"]);
  const Pipeline p = run_pipeline(g, {{FormatAssignment::What::stored, "cache", f, FieldSource::fitted}}, {});
  const auto expected = eval(p.plan.graph, in);
  const PlanRun run = run_plan(p.plan, p.memory, in);
  ASSERT_EQ(run.wrong, "");
  EXPECT_EQ(run.results[0].values, expected[0].values);
  // The row in the cache is the encoded row, the other rows are untouched.
  const auto after = decode(*f, run.states.at("cache").blob, 4, 32), before = decode(*f, in["cache"].blob, 4, 32);
  const auto encoded = decode(*f, packed(f, in["row"]).blob, 1, 32);
  const auto position = static_cast<size_t>(in["at"].values[0]);
  for (size_t r = 0; r < 4; ++r) {
    for (size_t k = 0; k < 32; ++k) EXPECT_EQ(after[r * 32 + k], r == position ? encoded[k] : before[r * 32 + k]);
  }
}

TEST(Assign, MistakesAreRefusedInWords) {
  Graph g = product(false);
  const auto refused = [&](FormatAssignment a, const std::string& message) {
    Graph copy = g;
    try {
      assign_formats(copy, {a});
      ADD_FAILURE() << message;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(message), std::string::npos) << e.what();
    }
  };
  const FormatRef f = library().get("q4_0");
  using What = FormatAssignment::What;
  refused({What::fake, "no.such", f, FieldSource::fitted}, "no value is called no.such");
  refused({What::stored, "product", f, FieldSource::fitted}, "is computed");
  refused({What::fake, "product", f, FieldSource::fitted}, "multiple of 32");
}

// y = sum(c * decode(code(x; scale))): the straight-through gradient of x and of the scale, against the number floor's
// own.
TEST(Assign, LearnedFieldsGetGradients) {
  const FormatRef f = library().get("q8_0");
  Graph g;
  Builder b(g);
  b.input("x", Role::parameter, {{2, 64}, kFloat});
  b.input("c", Role::data, {{2, 64}, kFloat});
  g.results = {0};
  g.result_names = {""};
  assign_formats(g, {{FormatAssignment::What::fake, "x", f, FieldSource::learned}});
  const ValueId x = g.find_input("x"), c = g.find_input("c");
  ValueId field = -1;
  int field_index = -1;
  for (ValueId v : g.inputs()) {
    if (g[v].attributes.name.rfind("x.", 0) == 0) field = v;
  }
  ASSERT_GE(field, 0);
  for (const Node& n : g.nodes) {
    if (n.op == Op::cast_ && n.type.element.format) field_index = n.attributes.sources.at(0).first;
  }
  EXPECT_EQ(g[field].type, (Type{{2, 2}, kFloat}));
  const ValueId y = g.results[0];
  const ValueId loss = b.reshape(b.reduce(b.mul(y, c), Reduction::sum, {0, 1}), {});
  const std::vector<ValueId> gradients = differentiate(g, loss, {x, field});
  g.results = {y, gradients[0], gradients[1]};
  g.result_names = {"", "", ""};
  ASSERT_EQ(verify(g), "");
  auto in = random_inputs(g, 5, 2);
  const std::string field_name = g[field].attributes.name;
  in[field_name].values = {1.0 / 128, 1.0 / 64, 1.0 / 256, 1.0 / 512};
  const auto r = eval(g, in);

  const std::vector<float> values(in["x"].values.begin(), in["x"].values.end()),
      dy(in["c"].values.begin(), in["c"].values.end());
  const SuppliedField supplied[] = {{field_index, in[field_name].values}};
  const std::vector<uint8_t> blob = encode(*f, values, 2, 64, supplied);
  const std::vector<double> expected = field_gradient(*f, field_index, values, blob, dy, 2, 64);
  ASSERT_EQ(r[2].values.size(), expected.size());
  for (size_t k = 0; k < expected.size(); ++k)
    EXPECT_NEAR(r[2].values[k], expected[k], 1e-3 * std::max(1.0, std::abs(expected[k])));
  const std::vector<float> mask = straight_through_mask(*f, values, blob, 2, 64);
  for (size_t k = 0; k < mask.size(); ++k) EXPECT_NEAR(r[1].values[k], mask[k] * dy[k], 1e-5) << k;
}

}  // namespace
}  // namespace lumen::graph

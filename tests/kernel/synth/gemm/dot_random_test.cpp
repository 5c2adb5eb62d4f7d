// needs: none. Random contractions: any letters in any order on operands and result, read through permuted and sliced
// views, with epilogues, on every machine; against the graph's own evaluation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "graph/ir/text.h"
#include "kernel/synth/dot.h"
#include "tests/kernel/synth/gemm/dot_harness.h"

namespace lumen {
namespace {

using graph::Builder;
using graph::Graph;
using graph::Role;
using graph::ValueId;

using Random = std::mt19937;

int64_t pick(Random& random, std::vector<int64_t> from) {
  return from[random() % from.size()];
}

struct Letters {
  std::string a, b, r;
  std::map<char, int64_t> extent;
};

Letters random_letters(Random& random) {
  Letters l;
  char next = 'a';
  auto add = [&](int most, bool in_a, bool in_b, bool in_r) {
    for (int count = static_cast<int>(random() % (most + 1)); count > 0; --count, ++next) {
      l.extent[next] = pick(random, {1, 2, 3, 5, 8, 17, 33});
      if (in_a) l.a += next;
      if (in_b) l.b += next;
      if (in_r) l.r += next;
    }
  };
  add(2, true, true, true);   // batch
  add(2, true, false, true);  // m
  add(2, false, true, true);  // n
  add(2, true, true, false);  // k
  for (std::string* s : {&l.a, &l.b, &l.r}) std::shuffle(s->begin(), s->end(), random);
  return l;
}

// An input whose permuted slice has the extents of `letters`.
ValueId operand(Builder& build, const std::string& name, const std::string& letters, const Letters& l, Random& random,
                Scalar scalar = Scalar::f32) {
  graph::Type t;
  t.element.scalar = scalar;
  graph::Shape sizes;
  std::vector<int64_t> starts;
  std::vector<int> order;
  for (size_t i = 0; i < letters.size(); ++i) order.push_back(static_cast<int>(i));
  if (random() % 2) std::shuffle(order.begin(), order.end(), random);
  const bool slices = random() % 3 == 0;
  std::vector<int> axes(letters.size());
  for (size_t at = 0; at < order.size(); ++at) {
    const int64_t extent = l.extent.at(letters[static_cast<size_t>(order[at])]);
    axes[static_cast<size_t>(order[at])] = static_cast<int>(at);
    t.shape.emplace_back(extent + (slices ? 2 : 0));
    sizes.emplace_back(extent);
    starts.push_back(slices ? 1 : 0);
  }
  ValueId v = build.input(name, Role::data, t);
  if (slices) v = build.slice(v, starts, sizes);
  return build.permute(v, axes);
}

// An input that is read by windows: two letters move along one axis, so that elements are read several times or never.
ValueId windowed(Builder& build, const std::string& name, const std::string& letters, const Letters& l, Random& random,
                 Scalar scalar) {
  if (letters.size() < 2) return operand(build, name, letters, l, random, scalar);
  const size_t first = random() % letters.size(),
               second = (first + 1 + random() % (letters.size() - 1)) % letters.size();
  graph::Type t;
  t.element.scalar = scalar;
  graph::Shape sizes;
  std::vector<int64_t> starts, strides;
  for (const char c : letters) sizes.emplace_back(l.extent.at(c));
  for (size_t j = 0; j < letters.size(); ++j) {
    if (j == second) continue;
    std::vector<int64_t> row(letters.size(), 0);
    const int64_t start = static_cast<int64_t>(random() % 2);
    int64_t last = start;
    row[j] = j == first ? pick(random, {1, 1, 2, 3}) : 1;
    if (j == first) row[second] = pick(random, {1, 1, 2});
    for (size_t k = 0; k < letters.size(); ++k) last += row[k] * (l.extent.at(letters[k]) - 1);
    t.shape.emplace_back(last + 1 + static_cast<int64_t>(random() % 2));
    starts.push_back(start);
    strides.insert(strides.end(), row.begin(), row.end());
  }
  return build.windows(build.input(name, Role::data, t), starts, strides, sizes);
}

// Every plan that any machine would run, not only the cheapest.
TEST(DotRandom, WindowsByEveryPlan) {
  Random random(2027);
  const auto machines = machine::all_machines();
  int plans = 0;
  for (int round = 0; round < 400; ++round) {
    const Letters l = random_letters(random);
    double work = 1;
    for (const auto& [c, e] : l.extent) work *= static_cast<double>(e);
    if (work > 20000) continue;
    Graph g;
    Builder build(g);
    const auto& m = *machines[random() % machines.size()];
    const Scalar scalar = m.wave > 1 && random() % 2 ? Scalar::bf16 : Scalar::f32;  // for matrix instructions
    const ValueId a = windowed(build, "a", l.a, l, random, scalar);
    const ValueId b =
        random() % 2 ? windowed(build, "b", l.b, l, random, scalar) : operand(build, "b", l.b, l, random, scalar);
    g.results = {build.contract(a, b, l.a, l.b, l.r)};
    g.result_names = {"r"};
    std::map<std::string, graph::Tensor> inputs;
    for (ValueId v : g.inputs()) inputs[g[v].attributes.name] = dot_test::random_tensor(g[v].type, random);
    const graph::Tensor want = graph::eval(g, inputs)[0];
    const graph::Plan plan = dot_test::one_dot_group(g);
    for (const synth::WrittenBid& w : synth::synthesize_bids(plan, plan.groups[0], m, {}, false)) {
      const std::vector<float> got = dot_test::floats_of(dot_test::run_evaluated(w.steps, plan, inputs, m));
      ASSERT_EQ(got.size(), want.values.size());
      ++plans;
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], want.values[i], 2e-5 * (1 + std::abs(want.values[i])))
            << "round " << round << " (" << l.a << "," << l.b << "->" << l.r << ") " << m.name << " "
            << w.steps.steps.back().plan << "\n"
            << graph::print(g);
    }
  }
  EXPECT_GT(plans, 150);
}

// Numbers of 16 bits on processors, by every plan that bids: runs of them end where memory does.
TEST(DotRandom, ShortNumbersOnProcessors) {
  Random random(2028);
  std::vector<const machine::Machine*> processors;
  for (const auto& m : machine::all_machines())
    if (m->wave <= 1) processors.push_back(&*m);
  int plans = 0;
  for (int round = 0; round < 300; ++round) {
    const Letters l = random_letters(random);
    double work = 1;
    for (const auto& [c, e] : l.extent) work *= static_cast<double>(e);
    if (work > 20000) continue;
    Graph g;
    Builder build(g);
    const auto& m = *processors[random() % processors.size()];
    const ValueId a = operand(build, "a", l.a, l, random, Scalar::bf16);
    const ValueId b = operand(build, "b", l.b, l, random, Scalar::bf16);
    g.results = {build.contract(a, b, l.a, l.b, l.r)};
    g.result_names = {"r"};
    std::map<std::string, graph::Tensor> inputs;
    for (ValueId v : g.inputs()) inputs[g[v].attributes.name] = dot_test::random_tensor(g[v].type, random);
    const graph::Tensor want = graph::eval(g, inputs)[0];
    const graph::Plan plan = dot_test::one_dot_group(g);
    for (const synth::WrittenBid& w : synth::synthesize_bids(plan, plan.groups[0], m, {}, false)) {
      SCOPED_TRACE(fmt::format("round {} {} {}", round, m.name, w.steps.steps.back().plan));
      const std::vector<float> got = dot_test::floats_of(dot_test::run_evaluated(w.steps, plan, inputs, m));
      ASSERT_EQ(got.size(), want.values.size());
      ++plans;
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], want.values[i], 2e-5 * (1 + std::abs(want.values[i]))) << graph::print(g);
    }
  }
  EXPECT_GT(plans, 150);
}

TEST(DotRandom, AnyContractionOnAnyMachine) {
  Random random(2026);
  const auto machines = machine::all_machines();
  for (int round = 0; round < 400; ++round) {
    const Letters l = random_letters(random);
    double work = 1;
    for (const auto& [c, e] : l.extent) work *= static_cast<double>(e);
    if (work > 40000) continue;
    Graph g;
    Builder build(g);
    const ValueId a = operand(build, "a", l.a, l, random), b = operand(build, "b", l.b, l, random);
    ValueId r = build.contract(a, b, l.a, l.b, l.r);
    if (random() % 3 == 0) {  // a residual with some axes of one, and a number
      graph::Type t;
      for (const graph::Dim& d : build.type(r).shape) t.shape.push_back(random() % 2 ? d : graph::Dim(1));
      r = build.add(r, build.mul(build.input("e", Role::data, t), build.scalar(1.5)));
    }
    const graph::Shape shape = build.type(r).shape;
    if (shape.size() >= 2 &&
        random() % 3 == 0) {  // a causal mask of the last two axes, computed beside the contraction
      graph::Type rows, columns;
      rows.shape = {shape[shape.size() - 2], 1};
      columns.shape = {shape.back()};
      const ValueId keep = build.binary(ScalarOp::le_, build.iota(columns, 0), build.iota(rows, 0));
      r = build.select(keep, r, build.scalar(-1));
    }
    g.results = {r};
    g.result_names = {"r"};
    std::map<std::string, graph::Tensor> inputs;
    for (ValueId v : g.inputs()) inputs[g[v].attributes.name] = dot_test::random_tensor(g[v].type, random);
    const graph::Tensor want = graph::eval(g, inputs)[0];
    const auto& m = *machines[random() % machines.size()];
    const graph::Plan plan = dot_test::one_dot_group(g);
    const synth::Synthesis s = synth::synthesize_dot(plan, plan.groups[0], m, {});
    const std::vector<float> got = dot_test::floats_of(dot_test::run_evaluated(s, plan, inputs, m));
    ASSERT_EQ(got.size(), want.values.size());
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], want.values[i], 2e-5 * (1 + std::abs(want.values[i])))
          << "round " << round << " (" << l.a << "," << l.b << "->" << l.r << ") " << m.name << " "
          << s.steps.back().plan;
  }
}

}  // namespace
}  // namespace lumen

// Needs: cpu. Scans as graphs: text, refusals, what leaves the steps and what goes, and gradients against differences.
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "graph/grad/reverse.h"
#include "graph/ir/build.h"
#include "graph/ir/eval.h"
#include "graph/ir/text.h"
#include "graph/ir/verify.h"
#include "graph/pass/pass.h"
#include "graph/steps/steps.h"

namespace lumen::graph {
namespace {

Graph parsed_scan(const std::string& text) {
  return *parse(std::make_shared<Source>(Source{"scan.txt", text}), {}).back();
}

// h' = tanh(h u + x w), y = h' * h.
constexpr const char* kCell =
    R"(graph cell(%h: data tensor<3x4xf32>, %x: data tensor<3x2xf32>, %w: data tensor<2x4xf32>, %u: data tensor<4x4xf32>) {
  %4 = contract %h, %u (bi,ij->bj) : tensor<3x4xf32>
  %5 = contract %x, %w (bi,ij->bj) : tensor<3x4xf32>
  %6 = map %4, %5 (%0: f32, %1: f32) { %2 = add f32 %0, %1; %3 = tanh f32 %2 } -> %3 : tensor<3x4xf32>
  %7 = map %6, %h (%0: f32, %1: f32) { %2 = mul f32 %0, %1 } -> %2 : tensor<3x4xf32>
  return %6, %7
}
)";
std::string scan_text(const std::string& how, const std::string& steps = "5") {
  return std::string(kCell) +
         fmt::format(
             "graph main(%h: data tensor<3x4xf32>, %x: data tensor<{0}x3x2xf32>, %w: data tensor<2x4xf32>, %u: data "
             "tensor<4x4xf32>) {{\n  %4 = scan %h, %x, %w, %u @cell {1} : tensor<3x4xf32>\n"
             "  %5 = result %4 index=0 : tensor<3x4xf32>\n  %6 = result %4 index=1 : tensor<{0}x3x4xf32>\n"
             "  return %5, %6\n}}\n",
             steps, how);
}

std::map<std::string, Tensor> scan_inputs(const Graph& g) {
  std::map<std::string, Tensor> out;
  std::mt19937 random(3);
  std::uniform_real_distribution<float> number(-1, 1);
  for (const ValueId v : g.inputs()) {
    Tensor t{g[v].type, {}, {}};
    t.values.resize(elements(t.type.shape).number());
    for (double& x : t.values) x = number(random);
    out[g[v].attributes.name] = t;
  }
  return out;
}

TEST(ScanGraph, TextComesBack) {
  for (const char* how : {"carries=1 sequences=1", "carries=1 sequences=1 reverse"}) {
    const Graph g = parsed_scan(scan_text(how));
    EXPECT_EQ(print(parsed_scan(print(g))), print(g));
  }
  EXPECT_NO_THROW(parsed_scan(scan_text("carries=1 sequences=1", "T")));
}

TEST(ScanGraph, WrongScansAreRefused) {
  const auto message = [](const std::string& text) -> std::string {
    try {
      parsed_scan(text);
    } catch (const Error& e) {
      return e.what();
    }
    return {};
  };
  EXPECT_NE(message(scan_text("carries=1 sequences=0")).find("there is one sequence at least"), std::string::npos);
  EXPECT_NE(message(scan_text("carries=1 sequences=2")).find("steps"), std::string::npos);
  EXPECT_NE(message(scan_text("carries=9 sequences=1")).find("9 carries"), std::string::npos);
  EXPECT_NE(message(scan_text("carries=-1 sequences=1")).find("carries"), std::string::npos);
}

TEST(ScanGraph, ProductsOfSequencesLeaveTheSteps) {
  for (const char* how : {"carries=1 sequences=1", "carries=1 sequences=1 reverse"}) {
    Graph g = parsed_scan(scan_text(how));
    const auto inputs = scan_inputs(g);
    const std::vector<Tensor> want = eval(g, inputs);
    hoist_steps(g);
    ASSERT_EQ(verify(g), "");
    const auto products = [](const Graph& of) {
      return std::count_if(of.nodes.begin(), of.nodes.end(), [](const Node& n) { return n.op == Op::contract_; });
    };
    EXPECT_EQ(products(g), 1);
    for (const Node& n : g.nodes)
      if (n.op == Op::scan_) {
        EXPECT_EQ(products(*n.attributes.callee), 1);
      }
    const std::vector<Tensor> got = eval(g, inputs);
    for (size_t k = 0; k < want.size(); ++k) EXPECT_EQ(got[k].values, want[k].values);
  }
}

TEST(ScanGraph, UnreadResultsGo) {
  Graph g = parsed_scan(scan_text("carries=1 sequences=1"));
  const auto inputs = scan_inputs(g);
  const std::vector<Tensor> want = eval(g, inputs);
  g.results.pop_back();
  g.result_names.pop_back();
  trim_scans(g);
  ASSERT_EQ(verify(g), "");
  for (const Node& n : g.nodes)
    if (n.op == Op::scan_) {
      EXPECT_EQ(n.attributes.callee->results.size(), 1U);
    }
  EXPECT_EQ(eval(g, inputs)[0].values, want[0].values);
}

TEST(ScanGraph, GradientsAreDifferences) {
  for (const char* how : {"carries=1 sequences=1", "carries=1 sequences=1 reverse"})
    for (const bool hoisted : {false, true}) {
      SCOPED_TRACE(fmt::format("{} {}", how, hoisted));
      Graph g = parsed_scan(scan_text(how));
      if (hoisted) hoist_steps(g);
      const std::vector<ValueId> inputs = g.inputs();
      Builder b(g);
      const auto sum = [&](ValueId v, int axes) {
        std::vector<int> all;
        for (int d = 0; d < axes; ++d) all.push_back(d);
        return b.reshape(b.reduce(b.unary(ScalarOp::sin_, v), Reduction::sum, all), {});
      };
      const ValueId loss = b.add(sum(g.results[0], 2), sum(g.results[1], 3));
      const std::vector<ValueId> gradients = differentiate(g, loss, inputs);
      g.results = {loss};
      g.results.insert(g.results.end(), gradients.begin(), gradients.end());
      g.result_names.assign(g.results.size(), "");
      ASSERT_EQ(verify(g), "");
      simplify(g);
      trim_scans(g);
      ASSERT_EQ(verify(g), "");
      auto values = scan_inputs(g);
      EvalOptions wide;
      wide.wide = true;
      const std::vector<Tensor> got = eval(g, values, wide);
      for (size_t i = 0; i < inputs.size(); ++i) {
        std::vector<double>& x = values[g[g.inputs()[i]].attributes.name].values;
        for (size_t k = 0; k < x.size(); ++k) {
          constexpr double kStep = 1e-5;
          const double at = x[k];
          x[k] = at + kStep;
          const double above = eval(g, values, wide)[0].values[0];
          x[k] = at - kStep;
          const double below = eval(g, values, wide)[0].values[0];
          x[k] = at;
          ASSERT_NEAR(got[i + 1].values[k], (above - below) / (2 * kStep), 1e-6) << i << " " << k;
        }
      }
    }
}

}  // namespace
}  // namespace lumen::graph

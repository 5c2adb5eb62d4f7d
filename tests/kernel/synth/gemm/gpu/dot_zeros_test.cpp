// needs: none. Products over windows of images with zeros around them: copies that write the zeros where a window
// leaves the image, and images laid out with them, give the sums of a graph's evaluator whatever strides, dilations,
// groups and borders, forward and of the gradient of the weight.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "graph/ir/text.h"
#include "kernel/synth/dot.h"
#include "kernel/synth/gemm/gpu/dot_block.h"
#include "tests/kernel/synth/gemm/dot_harness.h"

namespace lumen {
namespace {

using graph::Builder;
using graph::Dim;
using graph::Graph;
using graph::Role;
using graph::Shape;
using graph::ValueId;

struct Image {
  int64_t images, high, wide, groups, channels, outputs, side, stride, dilation;
  int64_t before, behind;  // zeros: rows have so many before and behind, columns the other way round
  int64_t high_after() const { return (high + before + behind - dilation * (side - 1) - 1) / stride + 1; }
  int64_t wide_after() const { return (wide + before + behind - dilation * (side - 1) - 1) / stride + 1; }
};

graph::Type bf16_type(Shape shape) {
  return {std::move(shape), {Scalar::bf16, nullptr}};
}

// Of the product, or of its gradient by the weight, for a gradient of its result.
Graph windows_product(const Image& s, bool is_gradient) {
  Graph g;
  Builder b(g);
  const ValueId x =
      b.input("x", Role::data, bf16_type({Dim(s.images), Dim(s.high), Dim(s.wide), Dim(s.groups), Dim(s.channels)}));
  const int64_t around = s.before + s.behind;
  const ValueId padded =
      b.pad(x, {Dim(s.images), Dim(s.high + around), Dim(s.wide + around), Dim(s.groups), Dim(s.channels)},
            {0, s.before, s.behind, 0, 0});
  std::vector<int64_t> strides(5 * 7, 0);  // n h i v j g c
  const auto at = [&](int axis, int index) -> int64_t& { return strides[axis * 7 + index]; };
  at(0, 0) = at(3, 5) = at(4, 6) = 1;
  at(1, 1) = at(2, 3) = s.stride;
  at(1, 2) = at(2, 4) = s.dilation;
  const int64_t high = s.high_after(), wide = s.wide_after();
  const ValueId seen =
      b.windows(padded, {0, 0, 0, 0, 0}, strides,
                {Dim(s.images), Dim(high), Dim(s.side), Dim(wide), Dim(s.side), Dim(s.groups), Dim(s.channels)});
  if (is_gradient) {
    const ValueId slope =
        b.input("g", Role::data, bf16_type({Dim(s.images), Dim(high), Dim(wide), Dim(s.groups), Dim(s.outputs)}));
    g.results = {b.contract(seen, slope, "nhivjgc", "nhvgo", "goijc")};
  } else {
    const ValueId w =
        b.input("w", Role::data, bf16_type({Dim(s.groups), Dim(s.outputs), Dim(s.side), Dim(s.side), Dim(s.channels)}));
    g.results = {b.contract(seen, w, "nhivjgc", "goijc", "nhvgo")};
  }
  g.result_names = {"r"};
  return g;
}

struct Case {
  graph::Plan plan;
  std::map<std::string, graph::Tensor> inputs;
  std::vector<double> wanted;
  double tolerance = 0;
};

Case case_of(const Graph& g, std::mt19937& random) {
  Case c{dot_test::one_dot_group(g), {}, {}, 0};
  for (const ValueId v : g.inputs()) c.inputs[g[v].attributes.name] = dot_test::random_tensor(g[v].type, random);
  c.wanted = graph::eval(g, c.inputs)[0].values;
  c.tolerance = 2e-6 * double(synth::normalise_dot(c.plan, c.plan.groups[0]).k_total()) + 1e-6;
  return c;
}

void expect_sums(const Case& c, const synth::Synthesis& s, const machine::Machine& m) {
  SCOPED_TRACE(m.name + ": " + s.steps.back().plan + "\n" + graph::print(c.plan.graph));
  const std::vector<float> got = dot_test::floats_of(dot_test::run_evaluated(s, c.plan, c.inputs, m));
  ASSERT_EQ(got.size(), c.wanted.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], c.wanted[i], c.tolerance) << "at " << i;
}

// Some plans that copy the image as it lies: the best, and others by another instruction. How many there were.
int check_copies(const Case& c, const machine::Machine& m, int most) {
  const auto problem = synth::normalise_dot(c.plan, c.plan.groups[0]);
  EXPECT_TRUE(problem.reads_zeros());
  std::set<std::string> seen;
  int checked = 0;
  for (const synth::BlockDot& d : synth::choose_block_dots(problem, m, false, 0)) {
    if (checked == most) break;
    if (!seen.insert(d.plan.tile.row ? d.plan.tile.row->row : "").second) continue;
    synth::Synthesis s;
    synth::write_block_dot(c.plan.graph, d, m, s);
    EXPECT_NE(s.steps.back().plan.find("dot"), std::string::npos);
    expect_sums(c, s, m);
    ++checked;
  }
  return checked;
}

const Image kImages[] = {
    {2, 9, 7, 1, 16, 24, 3, 1, 1, 1, 1},    // as residual networks have them
    {1, 11, 10, 1, 64, 16, 3, 2, 1, 1, 0},  // strided, zeros on two sides
    {2, 8, 9, 1, 8, 40, 5, 1, 1, 2, 3},     // five windows of K in a step
    {1, 12, 12, 1, 24, 8, 3, 1, 2, 2, 2},   // dilated, runs that end within a step
    {2, 6, 8, 2, 16, 16, 3, 1, 1, 1, 1},    // groups
    {3, 5, 5, 1, 72, 32, 1, 1, 1, 1, 0},    // no neighbours: zeros at the border alone
    {1, 4, 30, 1, 128, 16, 3, 1, 1, 0, 1},  // zeros behind
};

TEST(DotZeros, CopiesWriteZerosAroundImages) {
  std::mt19937 random(3);
  int number = 0;
  for (const Image& s : kImages) {
    const char* name = ++number % 3 == 0 ? "sm_80" : "sm_90a";
    const Case c = case_of(windows_product(s, false), random);
    EXPECT_GT(check_copies(c, *machine::find_machine(name), 1), 0) << name << " " << s.channels;
  }
}

TEST(DotZeros, CopiesWriteZerosInGradientsOfWeights) {
  std::mt19937 random(4);
  int checked = 0;
  for (const char* name : {"sm_90a", "sm_80"})
    for (const Image& s : {kImages[0], kImages[1], kImages[3]})
      checked += check_copies(case_of(windows_product(s, true), random), *machine::find_machine(name), 1);
  EXPECT_GE(checked, 4);
}

// Machines that copy nothing so, and families that read what lies there, get the image laid out with its zeros.
TEST(DotZeros, OthersReadImagesThatAreLaidOut) {
  std::mt19937 random(5);
  for (const char* name : {"x86-64-v3", "amx", "gfx942"})
    for (const Image& s : {kImages[1]})
      for (const bool is_gradient : {false, true}) {
        const auto m = machine::find_machine(name);
        const Case c = case_of(windows_product(s, is_gradient), random);
        for (const synth::WrittenBid& w : synth::synthesize_bids(c.plan, c.plan.groups[0], *m, {}, false)) {
          EXPECT_GT(w.steps.steps.size(), 1U);
          expect_sums(c, w.steps, *m);
        }
      }
}

TEST(DotZeros, NobodyLaysOutWhatIsCopied) {
  const Image large{4, 28, 28, 1, 64, 64, 3, 1, 1, 1, 1};
  for (const bool is_gradient : {false, true}) {
    const graph::Plan plan = dot_test::one_dot_group(windows_product(large, is_gradient));
    const synth::Synthesis s = synth::synthesize_dot(plan, plan.groups[0], *machine::find_machine("sm_90a"), {});
    for (const synth::Step& step : s.steps) EXPECT_EQ(step.plan.find("pad"), std::string::npos) << step.plan;
  }
}

}  // namespace
}  // namespace lumen

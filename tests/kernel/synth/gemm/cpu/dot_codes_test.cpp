// needs: none. Products of whole numbers: every plan of every machine gives the evaluator's sums, bit for bit, whatever
// the letters, views, types and extents, wrapping in 32 bits; and runs of codes go through dot instructions.
#include <gtest/gtest.h>

#include "graph/ir/text.h"
#include "kernel/synth/gemm/code_words.h"
#include "tests/kernel/synth/gemm/dot_harness.h"

namespace lumen {
namespace {

using graph::Builder;
using graph::Dim;
using graph::Graph;
using graph::Role;
using graph::Shape;
using graph::ValueId;

using CodeRandom = std::mt19937;

graph::Type codes_type(Shape shape, Scalar scalar) {
  return {std::move(shape), {scalar, nullptr}};
}

// The least and the largest code often.
graph::Tensor random_codes(const graph::Type& type, CodeRandom& random) {
  const bool is_signed = type.element.scalar == Scalar::i8 || type.element.scalar == Scalar::i16;
  const int64_t bits = scalar_bits(type.element.scalar);
  const int64_t count = int64_t{1} << bits, least = is_signed ? -count / 2 : 0;
  graph::Tensor t{type, {}, {}};
  for (int64_t i = 0; i < graph::elements(type.shape).number(); ++i) {
    const int64_t kind = random() % 6;
    const int64_t code = kind == 0 ? least : kind == 1 ? least + count - 1 : least + int64_t(random()) % count;
    t.values.push_back(double(code));
  }
  return t;
}

// What bids for the product gives, by the loop evaluator; how many plans, and how many by a dot instruction.
struct Plans {
  int all = 0, by_words = 0, by_bytes = 0, by_units = 0;
};
void compare_plans(const Graph& g, const machine::Machine& m, CodeRandom& random, Plans& plans) {
  std::map<std::string, graph::Tensor> inputs;
  for (const ValueId v : g.inputs()) inputs[g[v].attributes.name] = random_codes(g[v].type, random);
  const graph::Tensor want = graph::eval(g, inputs)[0];
  const dot_test::Bytes wanted = dot_test::to_bytes(want);
  const graph::Plan plan = dot_test::one_dot_group(g);
  const bool others = random() % 4 == 0;
  for (const synth::WrittenBid& w : synth::synthesize_bids(plan, plan.groups[0], m, {}, others)) {
    ASSERT_EQ(dot_test::run_evaluated(w.steps, plan, inputs, m), wanted)
        << m.name << " " << w.steps.steps.back().plan << "\n"
        << graph::print(g);
    ++plans.all;
    if (w.steps.steps.back().plan.find("i32") != std::string::npos &&
        w.steps.steps.back().plan.find("i32x") != std::string::npos)
      ++plans.by_words;
    if (w.steps.steps.back().plan.find("dot4.") != std::string::npos) ++plans.by_bytes;
    if (w.steps.steps.back().plan.find("unit ") != std::string::npos) ++plans.by_units;
  }
}

std::vector<const machine::Machine*> all_kinds() {
  std::vector<const machine::Machine*> out;
  for (const char* name : {"x86-64-v3", "avx-vnni", "avx512-vnni", "neon", "neon-dotprod", "neon-i8mm", "sve2-256",
                           "amx", "cortex-m4", "sm_90a"})
    out.push_back(&*machine::find_machine(name));
  return out;
}

Scalar any_scalar(CodeRandom& random) {
  constexpr Scalar kAll[] = {Scalar::i8, Scalar::i8, Scalar::u8, Scalar::i16};
  return kAll[random() % 4];
}

TEST(DotCodes, MatricesOfEveryShape) {
  CodeRandom random(1);
  Plans plans;
  for (const machine::Machine* m : all_kinds())
    for (const int64_t rows : {1, 3, 7, 17})
      for (const int64_t n : {1, 5, 8, 19})
        for (const int64_t k : {1, 2, 15, 16, 35, 64}) {
          if (random() % 3 != 0) continue;
          Graph g;
          Builder b(g);
          const bool turns = random() % 4 == 0;  // K does not lie in runs
          const Dim r(rows), c(n), d(k);
          const ValueId x = b.input("x", Role::data, codes_type(turns ? Shape{d, r} : Shape{r, d}, any_scalar(random)));
          const ValueId w = b.input("w", Role::data, codes_type({c, d}, any_scalar(random)));
          g.results = {b.contract(x, w, turns ? "km" : "mk", "nk", "mn")};
          g.result_names = {"y"};
          compare_plans(g, *m, random, plans);
        }
  EXPECT_GT(plans.all, 200);
  EXPECT_GT(plans.by_words, 60);
  EXPECT_GT(plans.by_bytes, 40);
}

// Windows with strides and dilations, groups, depthwise ones; the epilogue makes bytes of sums.
TEST(DotCodes, Convolutions) {
  CodeRandom random(2);
  Plans plans;
  const auto machines = all_kinds();
  for (int round = 0; round < 108; ++round) {
    const auto one_of = [&](std::initializer_list<int64_t> from) { return *(from.begin() + random() % from.size()); };
    const int64_t images = one_of({1, 2}), side = one_of({3, 5, 8}), window = one_of({1, 2, 3}),
                  stride = one_of({1, 2});
    const int64_t dilation = one_of({1, 2}), groups = one_of({1, 1, 2, 9}), channels = one_of({1, 3, 4, 8, 16});
    const int64_t outputs = groups == 9 ? 1 : one_of({1, 5, 8, 17});
    const int64_t read = stride * (side - 1) + dilation * (window - 1) + 1;
    Graph g;
    Builder b(g);
    const Scalar of_x = any_scalar(random);
    const ValueId x =
        b.input("x", Role::data, codes_type({Dim(images), Dim(read), Dim(read), Dim(groups), Dim(channels)}, of_x));
    std::vector<int64_t> strides(5 * 7, 0);  // n h i v j g c
    const auto at = [&](int axis, int index) -> int64_t& { return strides[axis * 7 + index]; };
    at(0, 0) = at(3, 5) = at(4, 6) = 1;
    at(1, 1) = at(2, 3) = stride;
    at(1, 2) = at(2, 4) = dilation;
    const ValueId seen =
        b.windows(x, {0, 0, 0, 0, 0}, strides,
                  {Dim(images), Dim(side), Dim(window), Dim(side), Dim(window), Dim(groups), Dim(channels)});
    const ValueId w = b.input(
        "w", Role::data, codes_type({Dim(groups), Dim(outputs), Dim(window), Dim(window), Dim(channels)}, Scalar::i8));
    const ValueId sums = b.contract(seen, w, "nhivjgc", "goijc", "nhvgo");
    Formula f;
    f.inputs = {Scalar::i32, Scalar::i8};
    const int sum = f.op(ScalarOp::add_, f.input(0), f.convert(ScalarOp::cast_, Scalar::i32, f.input(1)));
    f.outputs = {f.convert(ScalarOp::cast_, Scalar::i8, f.op(ScalarOp::shr_, sum, f.constant(Scalar::i32, 3)))};
    g.results = {b.map(f, {sums, b.input("shift", Role::data, codes_type({Dim(groups), Dim(outputs)}, Scalar::i8))})};
    g.result_names = {"y"};
    compare_plans(g, *machines[round % machines.size()], random, plans);
  }
  EXPECT_GT(plans.all, 108);
  EXPECT_GT(plans.by_words, 20);
  EXPECT_GT(plans.by_bytes, 15);
  EXPECT_GT(plans.by_units, 3);
}

// Windows by the matrix unit: rows of a tile are places of several images, runs of K end within a step, groups have
// panels of their own, and the last tiles are not full.
TEST(DotCodes, ConvolutionsByTheMatrixUnit) {
  struct Shape2d {
    int64_t images, side, window, stride, dilation, groups, channels, outputs;
  };
  CodeRandom random(5);
  Plans plans;
  for (const Shape2d& s :
       {Shape2d{2, 5, 3, 1, 1, 1, 24, 17}, Shape2d{1, 9, 1, 2, 1, 1, 64, 33}, Shape2d{3, 3, 2, 1, 2, 1, 70, 16},
        Shape2d{2, 4, 3, 2, 1, 2, 5, 19}, Shape2d{1, 6, 3, 1, 1, 1, 128, 48}}) {
    const int64_t read = s.stride * (s.side - 1) + s.dilation * (s.window - 1) + 1;
    Graph g;
    Builder b(g);
    const ValueId x = b.input(
        "x", Role::data, codes_type({Dim(s.images), Dim(read), Dim(read), Dim(s.groups), Dim(s.channels)}, Scalar::i8));
    std::vector<int64_t> strides(5 * 7, 0);  // n h i v j g c
    const auto at = [&](int axis, int index) -> int64_t& { return strides[axis * 7 + index]; };
    at(0, 0) = at(3, 5) = at(4, 6) = 1;
    at(1, 1) = at(2, 3) = s.stride;
    at(1, 2) = at(2, 4) = s.dilation;
    const ValueId seen = b.windows(
        x, {0, 0, 0, 0, 0}, strides,
        {Dim(s.images), Dim(s.side), Dim(s.window), Dim(s.side), Dim(s.window), Dim(s.groups), Dim(s.channels)});
    const ValueId w =
        b.input("w", Role::data,
                codes_type({Dim(s.groups), Dim(s.outputs), Dim(s.window), Dim(s.window), Dim(s.channels)}, Scalar::i8));
    const ValueId sums = b.contract(seen, w, "nhivjgc", "goijc", "nhvgo");
    Formula f;
    f.inputs = {Scalar::i32};
    f.outputs = {f.convert(ScalarOp::cast_, Scalar::i8, f.op(ScalarOp::shr_, f.input(0), f.constant(Scalar::i32, 3)))};
    g.results = {b.map(f, {sums})};
    g.result_names = {"y"};
    compare_plans(g, *machine::find_machine("amx"), random, plans);
    if (s.channels < 64) compare_plans(g, *machine::find_machine("sme-128"), random, plans);
  }
  EXPECT_GE(plans.by_units, 7);
}

// Sums of the largest products leave 32 bits and come back.
TEST(DotCodes, SumsWrap) {
  for (const machine::Machine* m : all_kinds()) {
    Graph g;
    Builder b(g);
    const ValueId x = b.input("x", Role::data, codes_type({Dim(8), Dim(66)}, Scalar::i16));
    const ValueId w = b.input("w", Role::data, codes_type({Dim(9), Dim(66)}, Scalar::i16));
    g.results = {b.contract(x, w, "mk", "nk", "mn")};
    g.result_names = {"y"};
    std::map<std::string, graph::Tensor> inputs;
    for (const ValueId v : g.inputs())
      inputs[g[v].attributes.name] = {
          g[v].type, std::vector<double>(graph::elements(g[v].type.shape).number(), -32768), {}};
    const graph::Tensor want = graph::eval(g, inputs)[0];
    EXPECT_EQ(want.values[0], double(int32_t(uint32_t(66ULL << 30))));
    const graph::Plan plan = dot_test::one_dot_group(g);
    for (const synth::WrittenBid& w_bid : synth::synthesize_bids(plan, plan.groups[0], *m, {}, false))
      EXPECT_EQ(dot_test::run_evaluated(w_bid.steps, plan, inputs, *m), dot_test::to_bytes(want)) << m->name;
  }
}

// K in stages, of whole words and not: tasks of a small cache.
TEST(DotCodes, StagesOfK) {
  CodeRandom random(3);
  int staged = 0;
  for (const char* name : {"x86-64-v3", "avx-vnni"})
    for (const auto& [k, n] : {std::pair{701, 9}, std::pair{701, 20}, std::pair{702, 9}, std::pair{704, 20}}) {
      machine::Machine small = *machine::find_machine(name);
      small.l2_bytes = 4 << 10;
      Graph g;
      Builder b(g);
      const ValueId x = b.input("x", Role::data, codes_type({Dim(13), Dim(k)}, Scalar::i8));
      const ValueId w = b.input("w", Role::data, codes_type({Dim(n), Dim(k)}, Scalar::i8));
      g.results = {b.contract(x, w, "mk", "nk", "mn")};
      g.result_names = {"y"};
      std::map<std::string, graph::Tensor> inputs;
      for (const ValueId v : g.inputs()) inputs[g[v].attributes.name] = random_codes(g[v].type, random);
      const dot_test::Bytes wanted = dot_test::to_bytes(graph::eval(g, inputs)[0]);
      const graph::Plan plan = dot_test::one_dot_group(g);
      for (const synth::WrittenBid& bid : synth::synthesize_bids(plan, plan.groups[0], small, {}, true)) {
        const std::string& text = bid.steps.steps.back().plan;
        ASSERT_EQ(dot_test::run_evaluated(bid.steps, plan, inputs, small), wanted) << text;
        staged += text.find(" k ") != std::string::npos ? 1 : 0;
      }
    }
  EXPECT_GT(staged, 4);
}

// Whatever signs the bytes have where the machine has a dot of bytes; of x86's only the one that does not saturate.
TEST(DotCodes, RunsOfCodesGoThroughDotInstructions) {
  struct Way {
    const char *machine, *row;
    Scalar x, w;
  };
  for (const Way& way :
       {Way{"x86-64-v3", "mulpairs.i16i16.i32x8", Scalar::i8, Scalar::i8},
        Way{"x86-64-v3", "mulpairs.i16i16.i32x8", Scalar::u8, Scalar::i8},
        Way{"avx-vnni", "dot4.u8i8.i32x8", Scalar::i8, Scalar::i8},
        Way{"avx512-vnni", "dot4.u8i8.i32x16", Scalar::i8, Scalar::i8},
        Way{"amx", "tile.i8i8.i32", Scalar::i8, Scalar::i8}, Way{"amx", "dot4.u8i8.i32x16", Scalar::u8, Scalar::i8},
        Way{"avx512-vnni", "dot4.u8i8.i32x16", Scalar::u8, Scalar::i8},
        Way{"avx512-vnni", "dot4.u8i8.i32x16", Scalar::i8, Scalar::u8},
        Way{"avx512-vnni", "dot4.u8i8.i32x16", Scalar::u8, Scalar::u8},
        Way{"avx512-vnni", "mulpairs.i16i16.i32x16", Scalar::i16, Scalar::i8},
        Way{"neon-dotprod", "dot4.i8i8.i32x4", Scalar::i8, Scalar::i8},
        Way{"neon-dotprod", "dot4.i8i8.i32x4", Scalar::u8, Scalar::i8},
        Way{"neon-i8mm", "dot4.u8i8.i32x4", Scalar::u8, Scalar::i8},
        Way{"neon-i8mm", "dot4.i8i8.i32x4", Scalar::i8, Scalar::i8},
        Way{"sme-512", "outer4.i8i8.i32x16x16", Scalar::i8, Scalar::i8},
        Way{"sme-512", "outer4.u8i8.i32x16x16", Scalar::u8, Scalar::i8},
        Way{"sme-512", "outer4.i8u8.i32x16x16", Scalar::i8, Scalar::u8},
        Way{"sme-512", "outer4.u8u8.i32x16x16", Scalar::u8, Scalar::u8}}) {
    Graph g;
    Builder b(g);
    const ValueId x = b.input("x", Role::data, codes_type({Dim(64), Dim(64)}, way.x));
    const ValueId w = b.input("w", Role::data, codes_type({Dim(64), Dim(64)}, way.w));
    g.results = {b.contract(x, w, "mk", "nk", "mn")};
    g.result_names = {"y"};
    const graph::Plan plan = dot_test::one_dot_group(g);
    const synth::Synthesis s = synth::synthesize_dot(plan, plan.groups[0], *machine::find_machine(way.machine), {});
    EXPECT_NE(s.steps.back().plan.find(way.row), std::string::npos) << way.machine << " " << s.steps.back().plan;
  }
}

// What a's shift adds is taken back, for every pair of signs, of the largest numbers: by rows and by tiles.
TEST(DotCodes, BytesOfEverySign) {
  CodeRandom random(4);
  Plans plans;
  for (const char* name : {"avx-vnni", "avx512-vnni", "neon-dotprod", "neon-i8mm"})
    for (const Scalar of_x : {Scalar::i8, Scalar::u8})
      for (const Scalar of_w : {Scalar::i8, Scalar::u8})
        for (const auto& [rows, k] : {std::pair{1, 75}, std::pair{4, 64}, std::pair{9, 37}}) {
          Graph g;
          Builder b(g);
          const ValueId x = b.input("x", Role::data, codes_type({Dim(rows), Dim(k)}, of_x));
          const ValueId w = b.input("w", Role::data, codes_type({Dim(21), Dim(k)}, of_w));
          g.results = {b.contract(x, w, "mk", "nk", "mn")};
          g.result_names = {"y"};
          compare_plans(g, *machine::find_machine(name), random, plans);
        }
  EXPECT_GT(plans.by_bytes, 40);
}

}  // namespace
}  // namespace lumen

// Needs: cpu. The three products of a layer whose operands pass through formats: kernels give what the evaluator gives,
// for every format that numbers can be written in, and every machine has kernels for them.
#include <gtest/gtest.h>

#include <cmath>

#include "graph/grad/reverse.h"
#include "graph/pass/pass.h"
#include "kernel/machine/machine.h"
#include "number/library/library.h"
#include "run/engine/compile/compile.h"
#include "run/engine/compile/repeat.h"
#include "tests/run/graphs.h"

namespace lumen::run {
namespace {

using graph::Role;
using graph::ValueId;

const FormatLibrary& library() {
  static const FormatLibrary all = FormatLibrary::builtin();
  return all;
}

// loss, and the gradients of x and w, of sum(c * (tanh(x) w)).
graph::Graph layer(int64_t tokens, int64_t in, int64_t out) {
  graph::Graph g;
  graph::Builder b(g);
  const ValueId x = b.input("x", Role::data, f32({tokens, in}));
  const ValueId w = b.input("w", Role::parameter, f32({out, in}));
  const ValueId c = b.input("c", Role::data, f32({tokens, out}));
  const ValueId y = b.contract(b.unary(ScalarOp::tanh_, x), w, "mk", "nk", "mn");
  g.results = {b.reshape(b.reduce(b.mul(b.unary(ScalarOp::sin_, y), c), graph::Reduction::sum, {0, 1}), {})};
  for (const ValueId d : graph::differentiate(g, g.results[0], {x, w})) g.results.push_back(d);
  g.result_names = {"loss", "dx", "dw"};
  return g;
}

graph::ProductType formats(const std::string& activation, const std::string& weight, const std::string& gradient,
                           Scalar scalar = Scalar::f32) {
  graph::ProductType type = scalar;
  type.formats.fill({library().get(activation), library().get(weight), library().get(gradient)});
  return type;
}

void check(const graph::ProductType& type, int64_t tokens, int64_t in, int64_t out, const std::string& what) {
  const graph::Graph plain = layer(tokens, in, out);
  graph::Graph rounded = plain;
  graph::round_products(rounded, type);
  const auto inputs = random_inputs(rounded, 5);
  const auto want = graph::eval(rounded, inputs);
  for (const bool exact : {false, true}) {
    Engine engine(options());
    CompileOptions compile;
    compile.exact = exact;
    compile.products = type;
    const auto program = run_once(engine, plain, inputs, compile);
    for (size_t r = 1; r < want.size(); ++r) {
      const auto got = floats_of(program->result(plain.result_names[r]));
      ASSERT_EQ(got.size(), want[r].values.size());
      double size = 0, wrong = 0, far = 0;
      for (const double v : want[r].values) size = std::max(size, std::abs(v));
      for (size_t i = 0; i < got.size(); ++i) {
        const double away = std::abs(got[i] - want[r].values[i]);
        far = std::max(far, away);
        wrong += away > 1e-5 * size ? 1 : 0;
      }
      // The gradient of y differs by a last bit here and there, and now and then one of its codes with it: such a code
      // moves one row of dx and one column of dw by little.
      EXPECT_LT(wrong, 0.05 * static_cast<double>(got.size()))
          << what << (exact ? " exact " : " ") << plain.result_names[r] << "\n"
          << program->explain();
      EXPECT_LT(far, 0.02 * size) << what << (exact ? " exact " : " ") << plain.result_names[r] << "\n"
                                  << program->explain();
    }
  }
}

TEST(OperandFormats, KernelsEqualTheEvaluatorForEveryFormat) {
  int formats_tried = 0;
  for (const FormatRef& f : library().all()) {
    if (!f->encodes() || f->block > 64) continue;
    check(formats(f->name, f->name, f->name), 64, 64, 128, f->name);
    formats_tried += 1;
  }
  EXPECT_GE(formats_tried, 50);
}

TEST(OperandFormats, KernelsEqualTheEvaluatorForMixedOnes) {
  const std::vector<std::vector<std::string>> cases = {
      {"fp8_two_level", "fp8_tensor", "fp8_e5m2_tensor"},
      {"fp8_1x128_p2", "fp8_128x128_p2", "fp8_1x128_p2"},
      {"fp8_1x128", "fp8_tile", "fp8_1x128"},
      {"int8_row", "int8_row", "fp8_e5m2_row"},
      {"mxfp8_e4m3_up", "mxfp4_up", "nvfp4_tensor"},
      {"fp8_e4m3", "fp8_e4m3", "fp8_e5m2"},
      {"bf16", "q8_0", "f16"},
      {"q4_k", "q6_k", "int8_1x128"},
      {"fp8_e4m3", "int8_row", "fp8_e5m2"},
  };
  for (const auto& names : cases) {
    const int64_t n = names[0] == "q4_k" ? 256 : 96;
    check(formats(names[0], names[1], names[2]), n, n, n, names[0] + " " + names[1] + " " + names[2]);
  }
  // Extents that no tile and no vector divides.
  check(formats("fp8_1x128", "fp8_tile", "fp8_1x128"), 50, 150, 35, "ragged tiles");
  check(formats("int8_row", "int8_row", "int8_row"), 37, 75, 29, "ragged rows");
  check(formats("mxfp8_e4m3_up", "q8_0", "nvfp4_divided"), 50, 75, 29, "ragged blocks");
}

// One kind of product in a format, the others in 16 bits; and operands that stay in f32.
TEST(OperandFormats, SingleRoles) {
  for (int kind = 0; kind < graph::kProductKinds; ++kind)
    for (const Scalar scalar : {Scalar::f32, Scalar::bf16}) {
      graph::ProductType type = scalar;
      type.formats[kind] = {library().get("fp8_1x128"), nullptr, library().get("fp8_e5m2_row")};
      const graph::Graph plain = layer(64, 64, 64);
      const auto inputs = random_inputs(plain, 6);
      graph::Graph rounded = plain;
      graph::round_products(rounded, type);
      const auto want = graph::eval(rounded, inputs);
      Engine engine(options());
      CompileOptions compile;
      compile.products = type;
      const auto program = run_once(engine, plain, inputs, compile);
      for (size_t r = 1; r < want.size(); ++r) {
        const auto got = floats_of(program->result(plain.result_names[r]));
        double size = 0, sum = 0;
        for (size_t i = 0; i < got.size(); ++i) {
          size += std::abs(want[r].values[i]);
          sum += std::abs(got[i] - want[r].values[i]);
        }
        EXPECT_LT(sum, 0.003 * size) << kind << " " << plain.result_names[r];
      }
    }
}

// What is drawn is the same in kernels and in the evaluator.
TEST(OperandFormats, RandomRoundingsAreThoseOfTheEvaluator) {
  for (const char* name : {"int8_row", "fp8_1x128", "mxfp4_up", "fp8_e5m2", "fp8_two_level"}) {
    graph::ProductType type = formats(name, name, name);
    type.random = {true, true, true};
    check(type, 64, 96, 32, name);
  }
}

TEST(OperandFormats, EveryMachineHasKernels) {
  const std::vector<std::vector<std::string>> cases = {
      {"fp8_two_level", "fp8_tensor", "fp8_e5m2_tensor"},
      {"fp8_1x128_p2", "fp8_128x128_p2", "fp8_1x128_p2"},
      {"int8_row", "int8_row", "int8_row"},
      {"mxfp8_e4m3_up", "mxfp8_e4m3_up", "mxfp8_e4m3_up"},
      {"nvfp4_tensor", "nvfp4_tensor", "nvfp4_tensor"},
      {"fp8_e4m3", "fp8_e4m3", "fp8_e5m2"},
  };
  for (const char* name : {"x86-64-v3", "amx", "neon-dotprod", "sm_80", "sm_89", "sm_90a", "gfx90a", "gfx942", "gfx950",
                           "gfx1100", "gfx1201"}) {
    const machine::MachineRef m = machine::find_machine(name);
    ASSERT_TRUE(m) << name;
    for (const auto& c : cases) {
      CompileOptions compile;
      compile.products = formats(c[0], c[1], c[2], Scalar::bf16);
      const graph::Pipeline pipeline = run_pipeline(layer(256, 256, 384), compile, *m);
      const DistinctKernels kernels = synthesize_distinct(pipeline.plan, *m, {false, 0, compile.products.scalar});
      EXPECT_FALSE(kernels.distinct.empty()) << name;
    }
  }
}

}  // namespace
}  // namespace lumen::run

// Needs: cpu. Products of activations that are held in a format: kernels give what the evaluator gives, and do not
// round a second time.
#include <gtest/gtest.h>

#include <cmath>

#include "graph/transform/encode_inputs.h"
#include "kernel/machine/machine.h"
#include "lang/parser.h"
#include "number/codec/codec.h"
#include "number/library/library.h"
#include "tests/run/graphs.h"

namespace lumen::run {
namespace {

using graph::Role;

// A format of a user: five bits beside one number for each row.
const char* const kOwn =
    "format own5 { row top : f32\n element q : i5\n decode(i) = top * q\n"
    "fit row(x) { top = (max(j) abs(x[j])) / 15 }\n code(v) = clamp(rint(v * recip(top)), -15, 15) }\n"
    "format own_tensor { tensor top : f32\n element q : i8\n decode(i) = top * q\n"
    "fit tensor(x) { top = (max(j) abs(x[j])) / 100 }\n code(v) = clamp(rint(v * recip(top)), -128, 127) }\n";

const FormatLibrary& library() {
  static const FormatLibrary all = [] {
    FormatLibrary l = FormatLibrary::builtin();
    l.add(lang::parse_file(std::make_shared<Source>(Source{"own.lum", kOwn})));
    return l;
  }();
  return all;
}

struct Case {
  std::string activations, weights;  // weights "f32": as they are
  int64_t rows = 1, columns = 128, outputs = 48;
  std::optional<double> scale = {};
};

graph::Graph product(const Case& c) {
  graph::Graph g;
  graph::Builder b(g);
  const auto x = b.input("x", Role::data, f32({c.rows, c.columns}));
  const auto w = b.input("w", Role::parameter, f32({c.outputs, c.columns}));
  g.results = {b.contract(b.unary(ScalarOp::tanh_, x), w, "mk", "nk", "mn")};
  g.result_names = {"y"};
  return graph::encode_inputs(std::move(g), {{"w", library().get(c.activations), c.scale}});
}

std::vector<float> compiled(const graph::Graph& g, const Case& c, const std::map<std::string, Tensor>& inputs,
                            bool exact, std::string* plan) {
  CompileOptions compile;
  compile.exact = exact;
  Engine engine(options());
  std::map<std::string, Tensor> in = inputs;
  if (c.weights != "f32") {
    graph::FormatAssignment stored;
    stored.what = graph::FormatAssignment::What::stored;
    stored.value = "w";
    stored.format = library().get(c.weights);
    compile.assignments = {stored};
  }
  const auto program = run_once(engine, g, in, compile);
  *plan = program->explain();
  return floats_of(program->result("y"));
}

void check(const Case& c, bool takes_codes) {
  const graph::Graph g = product(c);
  auto inputs = random_inputs(g, 3);
  auto seen = inputs;  // as the evaluator sees weights: decoded
  if (c.weights != "f32") {
    const FormatRef f = library().get(c.weights);
    std::vector<float> values(inputs["w"].values.begin(), inputs["w"].values.end());
    const std::vector<uint8_t> blob = encode(*f, values, c.outputs, c.columns);
    const std::vector<float> back = decode(*f, blob, c.outputs, c.columns);
    seen["w"].values.assign(back.begin(), back.end());
    inputs["w"] = {{{c.outputs, c.columns}, {Scalar::f32, f}}, {}, blob};
  }
  const auto want = graph::eval(g, seen)[0].values;
  double size = 0;
  for (const double v : want) size = std::max(size, std::abs(v));
  for (const bool exact : {false, true}) {
    std::string plan;
    const auto got = compiled(g, c, inputs, exact, &plan);
    double most = 0;
    for (size_t i = 0; i < want.size(); ++i) most = std::max(most, std::abs(got[i] - want[i]));
    EXPECT_LT(most, 3e-6 * size) << c.activations << " " << c.weights << " " << c.rows << "x" << c.columns << "\n"
                                 << plan;
    EXPECT_TRUE(!takes_codes || plan.find("groups of") != std::string::npos) << c.activations << "\n" << plan;
  }
}

TEST(EncodedInputs, KernelsEqualTheEvaluator) {
  for (const char* activations : {"int8", "int8_block", "own5", "own_tensor"})
    for (const int64_t rows : {1, 32}) check({activations, "int8_row", rows, 256}, true);
  for (const char* activations : {"int8_row", "q8_0", "mxint8"})
    for (const char* weights : {"q4_0", "q4_k"})
      for (const int64_t rows : {3, 32}) check({activations, weights, rows, 256}, true);
}

TEST(EncodedInputs, FormatsThatNoIntegerDotTakes) {
  for (const char* activations : {"fp8_tensor", "mxfp8_e4m3", "nvfp4", "bf16", "int4_g32_asym", "q8_k"}) {
    check({activations, "int8_row", 1, 256}, false);
    check({activations, "f32", 9, 256}, false);
  }
  for (const int64_t rows : {1, 9}) check({"fp8_row", "fp8_row", rows, 256}, false);
}

TEST(EncodedInputs, ExtentsThatFillNoVector) {
  for (const int64_t columns : {20, 100})
    for (const int64_t rows : {1, 5, 17}) check({"int8_row", "int8_row", rows, columns, 13}, false);
}

TEST(EncodedInputs, ScalesThatAreKnown) {
  for (const char* activations : {"int8", "fp8_tensor", "own_tensor"})
    for (const int64_t rows : {1, 3, 32}) check({activations, "int8_row", rows, 128, 48, 0.004}, false);
}

}  // namespace
}  // namespace lumen::run

// Products of operands that a step encodes itself: by rows of codes, forward and transposed.
#pragma once

#include "synth_harness.h"

namespace lumen::test {

struct CodedCase {
  int64_t m, n, k;
  const char *a, *b;    // formats
  bool across = false;  // the sum is over the first axis of both
};

inline std::vector<CodedCase> coded_cases() {
  return {{128, 128, 128, "int8_row", "int8_row"},
          {80, 144, 192, "int8_row", "int8_row"},
          {65, 70, 96, "int8_row", "int8_row"},
          {128, 128, 128, "fp8_two_level", "fp8_tensor"},
          {96, 80, 160, "mxfp8_e4m3_up", "mxfp8_e5m2"},
          {80, 96, 256, "fp8_1x128_p2", "fp8_128x128_p2"},
          {128, 64, 96, "nvfp4_divided", "mxfp4_up"},
          {70, 66, 64, "fp8_e5m2_tensor", "fp8_row"},
          {96, 128, 80, "fp8_e5m2_tensor", "fp8_tensor", true},
          {128, 256, 128, "fp8_128x128_p2", "fp8_128x128_p2", true},
          {96, 160, 64, "int8", "int8", true}};
}

// y = x w^T with both held in formats on the way.
inline G coded_graph(const CodedCase& c) {
  G t;
  const auto coded = [&](graph::ValueId v, const char* format) {
    return t.decoded(t.b.cast(v, {Scalar::f32, format_named(format)}));
  };
  const auto shape = [&](int64_t rows) {
    return c.across ? std::vector<int64_t>{c.k, rows} : std::vector<int64_t>{rows, c.k};
  };
  const graph::ValueId x = coded(t.in("x", shape(c.m)), c.a);
  const graph::ValueId w = coded(t.in("w", shape(c.n), Scalar::f32, graph::Role::parameter), c.b);
  t.out(t.b.contract(x, w, c.across ? "km" : "mk", c.across ? "kn" : "nk", "mn"));
  return t;
}

// What a machine's kernels of it are, a line each.
inline std::string plans_of_coded(const CodedCase& c, const char* machine) {
  const graph::Plan plan = graph::fuse(coded_graph(c).g);
  std::string out;
  for (const graph::Group& group : plan.groups)
    for (const synth::Step& step :
         synth::synthesize(plan, group, *machine::find_machine(machine), synth::Options{}).steps)
      out += step.plan + "\n";
  return out;
}

}  // namespace lumen::test

// Products of operands that a step encodes itself: by rows of codes, forward and transposed.
#pragma once

#include "synth_harness.h"

namespace lumen::test {

struct CodedCase {
  int64_t m, n, k;
  const char *a, *b;  // formats
};

inline std::vector<CodedCase> coded_cases() {
  return {{128, 128, 128, "int8_row", "int8_row"},
          {80, 144, 192, "int8_row", "int8_row"},
          {65, 70, 96, "int8_row", "int8_row"}};
}

// y = x w^T with both held in formats on the way.
inline G coded_graph(const CodedCase& c) {
  G t;
  const auto coded = [&](graph::ValueId v, const char* format) {
    return t.decoded(t.b.cast(v, {Scalar::f32, format_named(format)}));
  };
  const graph::ValueId x = coded(t.in("x", {c.m, c.k}), c.a);
  const graph::ValueId w = coded(t.in("w", {c.n, c.k}, Scalar::f32, graph::Role::parameter), c.b);
  t.out(t.b.contract(x, w, "mk", "nk", "mn"));
  return t;
}

}  // namespace lumen::test

// Maps whose values become codes of one byte, for the loop evaluator and for cards.
#pragma once

#include "tests/kernel/synth/synth_harness.h"

namespace lumen::test {

struct CodesCase {
  std::vector<int64_t> shape;
  std::vector<int64_t> matrix;  // that is transposed; empty: none
  bool straight = true;
  const char* format = "fp8_e4m3";
  Scalar element = Scalar::f32;
  bool by_row = false;         // a factor for each element of the last axis, too
  const char* held = nullptr;  // the format that x is decoded from
};

inline std::vector<CodesCase> codes_in_squares() {
  return {{{32, 64}, {32, 64}},
          {{2, 24, 20}, {48, 20}},
          {{2, 16, 3, 8}, {32, 24}},
          {{80, 36}, {80, 36}, false, "fp8_e5m2"},
          {{48, 64}, {48, 64}, true, "fp8_e4m3", Scalar::bf16},
          {{48, 64}, {48, 64}, true, "fp8_e4m3", Scalar::f32, true},
          {{48, 64}, {48, 64}, true, "fp8_e4m3", Scalar::f32, false, "bf16"}};
}
inline std::vector<CodesCase> codes_in_lines() {
  return {{{5, 7}, {5, 7}},
          {{32, 6}, {32, 6}, false},
          {{3, 5, 11}, {}},
          {{300}, {}, true, "fp8_e5m2"},
          {{4, 40}, {}, true, "fp8_e4m3", Scalar::bf16},
          {{48, 64}, {48, 64}, true, "fp8_e4m3", Scalar::f32, false, "q4_0"}};
}

// Numbers in memory under scales that are found here, as training encodes operands: `matrix` gives rows and columns.
inline std::vector<CodesCase> codes_under_scales() {
  return {{{2, 16, 64}, {32, 64}, true, "fp8_row_p2", Scalar::bf16},
          {{32, 64}, {32, 64}, true, "fp8_row"},
          {{2, 16, 2, 24}, {32, 48}, true, "int8_row", Scalar::bf16},
          {{48, 36}, {48, 36}, false, "fp8_e5m2_row", Scalar::f16},
          {{128, 256}, {128, 256}, true, "fp8_1x128_p2", Scalar::bf16},
          {{256, 128}, {256, 128}, true, "fp8_1x128"},
          {{128, 256}, {}, true, "fp8_128x128_p2"},
          {{2, 128, 2, 64}, {256, 128}, false, "fp8_1x128_p2", Scalar::bf16},
          {{128, 128}, {128, 128}, true, "int8_1x128"},
          {{128, 256}, {128, 256}, true, "fp8_128x128_p2", Scalar::bf16},
          {{256, 128}, {256, 128}, true, "fp8_tile", Scalar::bf16},
          {{4, 12, 40}, {48, 40}, true, "fp8_tensor", Scalar::bf16},
          {{16, 1024}, {}, true, "fp8_e5m2_tensor", Scalar::bf16},
          {{15, 7}, {15, 7}, true, "fp8_row", Scalar::bf16},
          {{3, 5, 44}, {}, true, "int8_row"}};
}

inline G scaled_codes_graph(const CodesCase& c) {
  G t;
  graph::ValueId x = t.in("x", c.shape, c.element);
  if (c.element != Scalar::f32) x = t.b.convert(x, Scalar::f32);
  const graph::Element codes{Scalar::f32, format_named(c.format)};
  const int64_t columns = c.matrix.empty() ? c.shape.back() : c.matrix[1];
  int64_t rows = 1;
  for (const int64_t n : c.shape) rows *= n;
  x = t.b.reshape(x, G::shape({rows / columns, columns}));
  if (c.straight) t.out(t.b.cast(x, codes));
  if (!c.matrix.empty()) t.out(t.b.cast(t.b.permute(x, {1, 0}), codes));
  return t;
}

inline G codes_graph(const CodesCase& c) {
  G t;
  const graph::ValueId x = c.held ? t.decoded(t.in("x", c.shape, format_named(c.held), graph::Role::parameter))
                                  : t.in("x", c.shape, c.element);
  Formula f;
  f.inputs = {c.element, Scalar::f32};
  const int wide = c.element == Scalar::f32 ? f.input(0) : f.convert(ScalarOp::cast_, Scalar::f32, f.input(0));
  f.outputs = {f.op(ScalarOp::div_, f.op(ScalarOp::mul_, wide, f.constant(Scalar::f32, 100)), f.input(1))};
  const graph::ValueId scaled = t.b.map(f, {x, c.by_row ? t.in("scale", {c.shape.back()}) : t.in("scale", {})});
  const graph::Element codes{Scalar::f32, format_named(c.format)};
  if (c.straight) t.out(t.b.cast(scaled, codes));
  if (!c.matrix.empty()) t.out(t.b.cast(t.b.permute(t.b.reshape(scaled, G::shape(c.matrix)), {1, 0}), codes));
  return t;
}

// Codes of numbers of which the largest is wanted, too: numbers in memory, or what maps compute (`chain`), or the
// encoded ones themselves (`own`).
struct ExtremeCase {
  CodesCase codes;
  bool chain = false, own = false;
  bool in_blocks = false;  // of lanes, where they form waves of 32
};
inline std::vector<ExtremeCase> codes_with_extremes() {
  return {{{{64, 128}, {64, 128}, true, "fp8_e4m3", Scalar::bf16}, false, false, true},
          {{{512, 128}, {512, 128}, true, "fp8_e5m2", Scalar::bf16}, true, false, true},
          {{{64, 128}, {}, true}, false, false, true},
          {{{2, 64, 4, 32}, {128, 128}, false, "fp8_e5m2", Scalar::bf16}, false, false, true},
          {{{64, 128}, {64, 128}}, false, true, true},
          {{{16, 64}, {16, 64}, true, "fp8_e4m3", Scalar::bf16}, true},
          {{{5, 7}, {5, 7}}, true},
          {{{3, 40, 300}, {}, true, "fp8_e4m3", Scalar::bf16}},
          {{{300, 100}, {}, true}, true}};
}

inline G extreme_codes_graph(const ExtremeCase& c) {
  G t;
  const Scalar element = c.codes.element;
  const auto wide = [&](Formula& f) {
    return f.inputs[0] == Scalar::f32 ? f.input(0) : f.convert(ScalarOp::cast_, Scalar::f32, f.input(0));
  };
  const auto scaled_by = [&](graph::ValueId x, graph::ValueId y) {
    Formula f;
    f.inputs = {element, Scalar::f32};
    f.outputs = {f.op(ScalarOp::mul_, wide(f), f.input(1))};
    return t.b.map(f, {x, y});
  };
  graph::ValueId x = t.in("x", c.codes.shape, element);
  if (c.chain) x = scaled_by(x, t.in("y", {c.codes.shape.back()}));
  if (c.chain && element != Scalar::f32) x = t.b.convert(x, element);
  const graph::ValueId scaled = scaled_by(x, t.in("scale", {}));
  Formula magnitude;
  magnitude.inputs = {c.own ? Scalar::f32 : element};
  magnitude.outputs = {magnitude.op(ScalarOp::abs_, wide(magnitude))};
  graph::ValueId most = t.b.map(magnitude, {c.own ? scaled : x});
  std::vector<int> all;
  for (int d = 0; d < std::ssize(c.codes.shape); ++d) all.push_back(d);
  if (!c.codes.matrix.empty()) most = t.b.reduce(most, graph::Reduction::max, {all.back()});
  t.out(t.b.reduce(most, graph::Reduction::max, all));
  const graph::Element codes{Scalar::f32, format_named(c.codes.format)};
  if (c.codes.straight) t.out(t.b.cast(scaled, codes));
  if (!c.codes.matrix.empty())
    t.out(t.b.cast(t.b.permute(t.b.reshape(scaled, G::shape(c.codes.matrix)), {1, 0}), codes));
  return t;
}

}  // namespace lumen::test

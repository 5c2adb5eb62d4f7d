// Cases of scatter_add for the loop evaluator and for cards.
#pragma once

#include "tests/kernel/synth/synth_harness.h"

namespace lumen::test {

struct ScatterCase {
  std::string name;
  std::vector<int64_t> numbers, columns;  // extents of the index, of a row
  int64_t rows = 1;
  double repeated = 0;  // part of the indices that are all the same
  Scalar element = Scalar::f32;
  bool transposed = false;  // the value lies with its columns first
  double tolerance = 2e-5;
};

inline std::vector<ScatterCase> scatter_cases() {
  return {
      {"no column", {70}, {}, 9},
      {"few rows", {3, 40}, {16}, 4},
      {"one row", {33}, {7}, 1},
      {"odd widths", {5, 9}, {37}, 6},
      {"several columns", {50}, {3, 20}, 8},
      {"more rows than values", {40}, {8}, 700},
      {"two vectors of a lane", {48}, {512}, 20},
      {"several parts", {1100}, {4}, 300},
      {"one token in half of all places", {600}, {8}, 300, 0.5},
      {"one token everywhere", {520}, {4}, 1000, 1},
      {"three digits", {64}, {4}, 70000},
      {"short floats", {90}, {16}, 5, 0.5, Scalar::bf16, false, 8e-3},
      {"whole numbers", {90}, {16}, 5, 0.5, Scalar::i32, false, 0},
      {"turned", {4, 16}, {24}, 5, 0.5, Scalar::f32, true},
  };
}

inline G scatter_graph(const ScatterCase& c) {
  G t;
  std::vector<int64_t> shape = c.numbers;
  shape.insert(shape.end(), c.columns.begin(), c.columns.end());
  graph::ValueId value = -1;
  if (c.transposed) {
    std::vector<int64_t> stored = shape;
    std::rotate(stored.begin(), stored.begin() + 1, stored.end());
    std::vector<int> axes{static_cast<int>(shape.size()) - 1};
    for (int d = 0; d + 1 < static_cast<int>(shape.size()); ++d) axes.push_back(d);
    value = t.b.permute(t.in("value", stored, c.element), axes);
  } else {
    value = t.in("value", shape, c.element);
  }
  t.out(t.b.scatter_add(value, t.in("index", c.numbers, Scalar::i32), graph::Dim(c.rows)));
  return t;
}

inline std::vector<double> indices_of(const ScatterCase& c) {
  std::mt19937 random(7);
  int64_t count = 1;
  for (const int64_t n : c.numbers) count *= n;
  std::vector<double> out;
  const auto same = static_cast<uint32_t>(c.repeated * 1000);
  for (int64_t i = 0; i < count; ++i)
    out.push_back(random() % 1000 < same ? static_cast<double>(c.rows / 2)
                                         : static_cast<double>(random() % static_cast<uint64_t>(c.rows)));
  return out;
}

}  // namespace lumen::test

// A product of two matrices, as tests of its kernels take it.
#pragma once

#include <string>

#include "graph/ir/build.h"

namespace lumen::graph {

// r [m, n] of x and y, each in the order that its letters say: "mk" or "km", "nk" or "kn".
inline Graph matrix_product(int64_t m, int64_t n, int64_t k, Scalar s, const std::string& ix = "mk",
                            const std::string& iy = "nk") {
  const auto type = [&](const std::string& indices) {
    Shape shape;
    for (const char c : indices) shape.push_back(Dim(c == 'm' ? m : c == 'n' ? n : k));
    return Type{shape, {s, nullptr}};
  };
  Graph g;
  Builder build(g);
  const ValueId x = build.input("x", Role::data, type(ix)), y = build.input("y", Role::data, type(iy));
  g.results = {build.contract(x, y, ix, iy, "mn")};
  g.result_names = {"r"};
  return g;
}

}  // namespace lumen::graph

// Shapes of products as benchmarks are given them: "MxNxK,MxNxK,..".
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace lumen {

struct ProductShape {
  int64_t m = 0, n = 0, k = 0;
};

// Error (exit 2) on what is none.
inline std::vector<ProductShape> read_shapes(std::string_view text) {
  std::vector<ProductShape> shapes;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string one(text.substr(0, end));
    ProductShape s;
    int read = 0;
    const int numbers = std::sscanf(one.c_str(), "%ldx%ldx%ld%n", &s.m, &s.n, &s.k, &read);
    if (numbers != 3 || std::cmp_not_equal(read, one.size()) || s.m < 1 || s.n < 1 || s.k < 1)
      throw usage_error("a shape is MxNxK, not '{}'", one);
    shapes.push_back(s);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return shapes;
}

}  // namespace lumen

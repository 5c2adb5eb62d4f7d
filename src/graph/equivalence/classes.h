// Classes of channels: each represents one free number, its inverse, or 1. A code is the number of a class, negative
// for the inverse; 0 is no code. A union-find. Proved by tests/graph/equivalence/sites_test.cpp.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

namespace lumen::graph {

class Classes {
 public:
  static constexpr int32_t kFixed = 1;  // the class of 1

  int32_t fresh() {
    above_.push_back(above_.size());
    ++free_;
    return above_.back();
  }
  // The code at the root of a code's class.
  int32_t root(int32_t code) const {
    int32_t sign = code < 0 ? -1 : 1, at = std::abs(code);
    while (above_[at] != at) {
      const int32_t up = above_[at];
      sign = up < 0 ? -sign : sign;
      at = std::abs(up);
    }
    return at == kFixed ? kFixed : sign * at;
  }
  bool is_fixed(int32_t code) const { return root(code) == kFixed; }
  int64_t free() const { return free_; }

  // Both codes represent the same number from now on. True when a class stopped being free.
  bool unite(int32_t a, int32_t b) {
    a = root(a);
    b = root(b);
    if (a == b) return false;
    if (a == -b) b = kFixed;  // a number that equals its inverse is 1
    if (a == kFixed || (b != kFixed && std::abs(b) < std::abs(a))) std::swap(a, b);
    // `a` goes to `b`.
    above_[std::abs(a)] = a < 0 && b != kFixed ? -b : b;
    --free_;
    return true;
  }

 private:
  std::vector<int32_t> above_{0, kFixed};
  int64_t free_ = 0;
};

}  // namespace lumen::graph

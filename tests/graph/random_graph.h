// Random small graphs and inputs for them, from a seed: the fuel of the property tests of passes.
#pragma once

#include <map>
#include <random>
#include <string>
#include <vector>

#include "graph/ir/build.h"
#include "graph/ir/eval.h"

namespace lumen::graph {

class RandomGraph {
 public:
  explicit RandomGraph(uint32_t seed) : random_(seed), b_(g_) {
    b_.input("x", Role::data, {{4, 6}, kF32});
    b_.input("w", Role::parameter, {{6, 6}, kF32});
    b_.input("s", Role::state, {{4, 6}, kF32});
    b_.input("i", Role::data, {{3}, kI32});
    b_.input("seed", Role::data, {{}, {Scalar::u32, nullptr}});
    b_.scalar(0.5);
    b_.constant({{6}, kF32}, {1, 2, 3, -1, -2, 0});
    b_.iota({{4, 6}, kF32}, 1);
    const int count = 6 + pick(26);
    for (int k = 0; k < count; ++k) grow();
    for (int r = 1 + pick(4); r > 0; --r) finish(float_value());
    if (pick(2) == 0) update();
  }

  Graph graph() const { return g_; }

  std::map<std::string, Tensor> inputs() {
    std::map<std::string, Tensor> in;
    for (ValueId v : g_.inputs()) {
      Tensor t{g_[v].type, {}, {}};
      const int64_t n = elements(t.type.shape).number();
      for (int64_t k = 0; k < n; ++k) {
        t.values.push_back(is_float(t.type.element.scalar) ? std::uniform_int_distribution<int>(-8, 8)(random_) / 4.0
                                                           : pick(4));
      }
      in[g_[v].attributes.name] = std::move(t);
    }
    return in;
  }

 private:
  static inline const Element kF32{Scalar::f32, nullptr}, kI32{Scalar::i32, nullptr};

  int pick(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  void finish(ValueId v) {
    g_.results.push_back(v);
    g_.result_names.push_back("r" + std::to_string(g_.results.size()));
  }
  ValueId float_value() {
    for (;;) {
      const ValueId v = pick(static_cast<int>(g_.nodes.size()));
      if (g_[v].type.element == kF32) return v;
    }
  }
  // The newest values more often, so that chains grow.
  ValueId recent() {
    for (int tries = 0; tries < 20; ++tries) {
      const int back = pick(6);
      const auto v = static_cast<ValueId>(g_.nodes.size()) - 1 - back;
      if (v >= 0 && g_[v].type.element == kF32) return v;
    }
    return float_value();
  }
  bool small(const Shape& s) const { return elements(s).number() <= 600 && s.size() <= 4; }

  void grow() {
    const ValueId a = recent();
    const Shape s = b_.type(a).shape;
    switch (pick(16)) {
      case 0:
      case 1:
      case 2: {  // binary map, when the shapes agree
        for (int tries = 0; tries < 10; ++tries) {
          const ValueId c = pick(2) == 0 ? recent() : float_value();
          const Shape t = b_.type(c).shape;
          bool fits = true;
          for (size_t d = 1; d <= std::min(s.size(), t.size()); ++d) {
            const Dim &x = s[s.size() - d], &y = t[t.size() - d];
            fits = fits && (x == y || x == Dim(1) || y == Dim(1));
          }
          if (!fits || !small(s.size() > t.size() ? s : t)) continue;
          constexpr ScalarOp kOps[] = {ScalarOp::add_, ScalarOp::sub_, ScalarOp::mul_, ScalarOp::max_};
          const ValueId m = b_.binary(kOps[pick(4)], a, c);
          if (!small(b_.type(m).shape)) g_.nodes.pop_back();
          return;
        }
        return;
      }
      case 3: {
        constexpr ScalarOp kOps[] = {ScalarOp::neg_, ScalarOp::abs_, ScalarOp::tanh_, ScalarOp::floor_};
        b_.unary(kOps[pick(4)], a);
        return;
      }
      case 4: {  // softmax: reduces and maps of one row
        if (s.empty()) return;
        const ValueId m = b_.reduce(a, Reduction::max, {-1});
        const ValueId e = b_.unary(ScalarOp::exp_, b_.sub(a, m));
        b_.div(e, b_.reduce(e, Reduction::sum, {-1}));
        return;
      }
      case 5:
        if (s.empty()) return;
        b_.reduce(a, static_cast<Reduction>(pick(3)), {pick(static_cast<int>(s.size()))});
        return;
      case 6: {  // matrix product with w, or of the value with itself
        if (s.size() != 2) return;
        if (s[1] == Dim(6)) {
          const ValueId y = b_.contract(a, 1, "mk", pick(2) == 0 ? "nk" : "kn", pick(2) == 0 ? "mn" : "nm");
          const Shape t = b_.type(y).shape;
          if (t[0].number() % 2 == 0 && pick(2) == 0) b_.reshape(y, {2, t[0].number() / 2, t[1]});
        } else {
          b_.contract(a, a, "mk", "nk", "mn");
        }
        return;
      }
      case 7: {
        Shape flipped(s.rbegin(), s.rend());
        std::vector<int> axes;
        for (size_t d = s.size(); d-- > 0;) axes.push_back(static_cast<int>(d));
        b_.permute(a, axes);
        return;
      }
      case 8: {
        const int64_t n = elements(s).number();
        Shape to{n};
        if (n % 2 == 0 && pick(2) == 0) to = {2, n / 2};
        if (n % 3 == 0 && pick(2) == 0) to = {n / 3, 1, 3};
        if (n == 24 && pick(2) == 0) to = {4, 6};
        if (s.size() == 2 && s[0] == Dim(4) && pick(2) == 0) to = {2, 2, s[1]};
        b_.reshape(a, to);
        return;
      }
      case 9: {
        Shape to = s;
        to.insert(to.begin(), 2);
        if (small(to)) b_.broadcast(a, to);
        return;
      }
      case 10: {
        if (s.empty()) return;
        Shape to = s;
        std::vector<int64_t> starts(s.size(), 0), strides(s.size(), 1);
        const int d = pick(static_cast<int>(s.size()));
        const int64_t n = s[d].number();
        starts[d] = pick(static_cast<int>(n));
        to[d] = 1 + pick(static_cast<int>(n - starts[d]));
        if (to[d].number() == 2 && starts[d] + 2 < n) strides[d] = 2;
        b_.slice(a, starts, to, strides);
        return;
      }
      case 11: {
        if (s.empty()) return;
        Shape to = s;
        to[0] = Dim(s[0].number() + 2);
        std::vector<int64_t> starts(s.size(), 0);
        starts[0] = 1;
        if (small(to)) b_.pad(a, to, starts);
        return;
      }
      case 12:
        if (!s.empty() && small(s)) b_.concat({a, a}, 0);
        return;
      case 13: {
        if (s.empty() || s[0].number() < 4) return;
        const ValueId rows = b_.gather(a, 3);
        if (pick(2) == 0) b_.scatter_add(rows, 3, 4);
        return;
      }
      case 15: {  // windows along one axis, which overlap or leave gaps, the other axes in any order
        if (s.empty()) return;
        const auto rank = s.size();
        const auto d = static_cast<size_t>(pick(static_cast<int>(rank)));
        const int64_t n = s[d].number(), inside = 1 + pick(static_cast<int>(std::min<int64_t>(n, 3)));
        const int64_t gap = 1 + pick(inside == 1 ? 1 : static_cast<int>(std::min<int64_t>(2, (n - 1) / (inside - 1))));
        const int64_t room = n - gap * (inside - 1), step = 1 + pick(2);
        const int64_t start = pick(static_cast<int>(room));
        const auto window = static_cast<size_t>(pick(static_cast<int>(rank) + 1)), count = rank + 1;
        std::vector<int64_t> starts(rank, 0), strides(rank * count, 0);
        Shape full(count);
        for (size_t axis = 0, j = 0; axis < rank; ++axis, ++j) {
          if (j == window) ++j;
          full[j] = axis == d ? Dim((room - start - 1) / step + 1) : s[axis];
          strides[axis * count + j] = axis == d ? step : 1;
        }
        full[window] = Dim(inside);
        strides[d * count + window] = gap;
        starts[d] = start;
        if (small(full)) b_.windows(a, starts, strides, full);
        return;
      }
      case 14: {
        const ValueId noise = b_.random(4, static_cast<uint32_t>(pick(3)), s);
        b_.mul(a, noise);
        return;
      }
    }
  }

  // The state becomes a function of itself, or takes a row somewhere.
  void update() {
    const ValueId row = b_.slice(2, {1, 0}, {1, 6});
    ValueId next = -1;
    if (pick(3) == 0) {
      next = b_.update(2, row, {b_.scalar(2, Scalar::i32), b_.scalar(0, Scalar::i32)});
    } else {
      ValueId value = b_.mul(2, b_.scalar(0.75));
      const auto count = static_cast<ValueId>(g_.nodes.size());
      for (ValueId v = 8; v < count; ++v) {
        if (b_.type(v) == b_.type(2)) value = b_.add(value, v);
      }
      next = b_.update(2, value);
    }
    for (ValueId& r : g_.results) {
      if (r == 2) r = next;
    }
    if (pick(2) == 0) finish(next);
    if (pick(2) == 0) finish(b_.unary(ScalarOp::neg_, row));  // read late through a view: the old value
    if (pick(2) == 0) finish(b_.unary(ScalarOp::neg_, next));
  }

  std::mt19937 random_;
  Graph g_;
  Builder b_;
};

}  // namespace lumen::graph

// Needs: none. Gradients of windows that move by more than one: tables, and random convolutions and poolings against
// the sums that define them, in double precision. Nothing is put between the elements of a gradient.
#include "graph/grad/phases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "graph/grad/reverse.h"
#include "graph/ir/verify.h"
#include "graph/pass/pass.h"
#include "tests/graph/blocks.h"

namespace lumen::graph {
namespace {

TEST(Phases, EveryElementMeetsItsWindows) {
  for (int64_t stride = 1; stride <= 5; ++stride)
    for (int64_t d = 1; d <= 4; ++d)
      for (int64_t count = 1; count <= 5; ++count)
        for (int64_t start = -4; start <= 4; ++start)
          for (int64_t extent = 1; extent <= 7; ++extent) {
            SCOPED_TRACE(testing::Message() << "stride " << stride << " d " << d << " count " << count << " start "
                                            << start << " extent " << extent);
            const std::optional<Phases> p = phases_of(start, stride, d, count, extent);
            ASSERT_TRUE(p);
            ASSERT_EQ(std::ssize(p->taps.element), p->taps.count * stride);
            ASSERT_GE(p->places * stride, extent + p->shift);
            for (int64_t l = 0; l < extent; ++l) {
              const int64_t q = (l + p->shift) / stride, r = (l + p->shift) % stride;
              std::vector<std::pair<int64_t, int64_t>> met, wanted;  // windows and their elements
              for (int64_t t = 0; t < p->taps.count; ++t)
                if (const int64_t i = p->taps.element[t * stride + r]; i >= 0)
                  met.emplace_back(q + p->first + p->step * t, i);
              for (int64_t i = 0; i < count; ++i)
                if ((l - start - d * i) % stride == 0) wanted.emplace_back((l - start - d * i) / stride, i);
              std::sort(met.begin(), met.end());
              std::sort(wanted.begin(), wanted.end());
              ASSERT_EQ(met, wanted) << l;
            }
          }
}

TEST(Phases, MultiplyNoMoreThanTheyMust) {
  // Three elements and stride 2: two windows meet an element, at once aligned with it.
  const std::optional<Phases> three = phases_of(-1, 2, 1, 3, 32);
  EXPECT_EQ(three->taps.count, 2);
  EXPECT_EQ(three->shift, 0);
  EXPECT_EQ(three->places, 16);
  // Four, one of padding: the same two where one more place is in front.
  const std::optional<Phases> four = phases_of(-1, 2, 1, 4, 32);
  EXPECT_EQ(four->taps.count, 2);
  EXPECT_EQ(four->shift, 1);
  EXPECT_EQ(phases_of(0, 5, 1, 2, 20)->taps.count, 1) << "windows that leave elements out";
  EXPECT_EQ(phases_of(0, 2, 2, 3, 20)->taps.count, 3) << "every second class is met by none";
  EXPECT_FALSE(phases_of(0, int64_t(1) << 40, 1, 3, 20)) << "no table of a terabyte";
}

// An axis that windows move along.
struct Along {
  int64_t extent = 0, before = 0, behind = 0, count = 0, stride = 1, d = 1, between = 1;
  int64_t padded() const { return before + (extent - 1) * between + 1 + behind; }
  int64_t windows() const { return (padded() - d * (count - 1) - 1) / stride + 1; }
};

struct Drawn {
  std::vector<Along> axes;
  int64_t images = 1, groups = 1, inner = 1, outer = 1;  // channels of a group
};

Drawn drawn(std::mt19937& random, bool transposed) {
  const auto among = [&](int64_t least, int64_t most) {
    return least + int64_t(random() % uint32_t(most - least + 1));
  };
  Drawn c;
  c.axes.resize(among(1, 2));
  for (Along& a : c.axes) {
    do {
      a = {among(1, 9), among(0, 3), among(0, 3), among(1, 5), among(1, 4), random() % 4 == 0 ? among(2, 3) : 1, 1};
      if (transposed) {
        a.between = among(1, 3);
        if (random() % 3 != 0) a.stride = 1;
      }
    } while (a.padded() < a.d * (a.count - 1) + 1);
  }
  c.images = among(1, 2);
  c.groups = random() % 2 == 0 ? 1 : among(2, 3);
  c.inner = among(1, 3);
  c.outer = among(1, 3);
  return c;
}

std::string told(const Drawn& c) {
  std::string out;
  for (const Along& a : c.axes)
    out += fmt::format("[{} + {} + {}, windows of {}, stride {}, {} apart, between {}] ", a.before, a.extent, a.behind,
                       a.count, a.stride, a.d, a.between);
  return out + fmt::format("{} images, {} groups, {} to {}", c.images, c.groups, c.inner, c.outer);
}

// x [n, h.., g, c] among zeros, as windows [n, h, i, .., g, c].
ValueId windows_of(Builder& b, ValueId x, const Drawn& c) {
  const size_t axes = c.axes.size(), rank = 2 * axes + 3;
  Shape padded = b.type(x).shape, sizes{Dim(c.images)};
  std::vector<int64_t> starts(axes + 3, 0), between(axes + 3, 1), moves((axes + 3) * rank, 0);
  moves[0] = 1;
  for (size_t d = 0; d < axes; ++d) {
    const Along& a = c.axes[d];
    padded[1 + d] = Dim(a.padded());
    starts[1 + d] = a.before;
    between[1 + d] = a.between;
    moves[(1 + d) * rank + 1 + 2 * d] = a.stride;
    moves[(1 + d) * rank + 2 + 2 * d] = a.d;
    sizes.emplace_back(a.windows());
    sizes.emplace_back(a.count);
  }
  for (size_t d = axes + 1; d < axes + 3; ++d) {
    moves[d * rank + axes + d] = 1;
    sizes.push_back(padded[d]);
  }
  return b.windows(b.pad(x, padded, starts, between), std::vector<int64_t>(axes + 3, 0), moves, sizes);
}

// Calls f(window numbers, elements of the window, elements of x) for all that meet.
template <typename F>
void each_meeting(const Drawn& c, const F& f) {
  const size_t axes = c.axes.size();
  std::vector<int64_t> m(axes, 0), i(axes, 0), l(axes, 0);
  const auto along = [&](const auto& self, size_t d) -> void {
    if (d == axes) return f(m, i, l);
    const Along& a = c.axes[d];
    for (m[d] = 0; m[d] < a.windows(); ++m[d])
      for (i[d] = 0; i[d] < a.count; ++i[d]) {
        const int64_t at = a.stride * m[d] + a.d * i[d] - a.before;
        if (at < 0 || at % a.between != 0 || at / a.between >= a.extent) continue;
        l[d] = at / a.between;
        self(self, d + 1);
      }
  };
  along(along, 0);
}

int64_t flat(const Drawn& c, int64_t first, const std::vector<int64_t>& place, int64_t Along::* extent,
             int64_t (Along::*count)() const) {
  for (size_t d = 0; d < place.size(); ++d)
    first = first * (extent ? c.axes[d].*extent : (c.axes[d].*count)()) + place[d];
  return first;
}
int64_t of_x(const Drawn& c, int64_t n, const std::vector<int64_t>& l) {
  return flat(c, n, l, &Along::extent, nullptr);
}
int64_t of_windows(const Drawn& c, int64_t n, const std::vector<int64_t>& m) {
  return flat(c, n, m, nullptr, &Along::windows);
}

ValueId weighed(Builder& b, ValueId y) {
  const ValueId weights = b.input("weights", Role::data, b.type(y));
  std::vector<int> axes;
  for (int d = 0; d < std::ssize(b.type(y).shape); ++d) axes.push_back(d);
  return b.reshape(b.reduce(b.mul(y, weights), Reduction::sum, axes), {});
}

// The gradient by x alone: of a graph that has nothing else.
std::vector<double> gradient_of(Graph& g, ValueId loss, const std::map<std::string, Tensor>& in) {
  const ValueId x = g.inputs()[0];
  g.results = differentiate(g, loss, {x});
  g.result_names = {""};
  simplify(g);
  EXPECT_EQ(verify(g), "");
  EvalOptions wide;
  wide.wide = true;
  return eval(g, in, wide)[0].values;
}

void expect_near(const std::vector<double>& found, const std::vector<double>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t k = 0; k < found.size(); ++k) ASSERT_NEAR(found[k], wanted[k], 1e-9) << k;
}

bool puts_between(const Graph& g) {
  return std::any_of(g.nodes.begin(), g.nodes.end(), [](const Node& n) {
    return n.op == Op::pad_ &&
           std::any_of(n.attributes.strides.begin(), n.attributes.strides.end(), [](int64_t s) { return s != 1; });
  });
}

Shape shape_of(const Drawn& c) {
  Shape out{Dim(c.images)};
  for (const Along& a : c.axes) out.emplace_back(a.extent);
  out.emplace_back(c.groups);
  out.emplace_back(c.inner);
  return out;
}

void check_convolution(const Drawn& c) {
  SCOPED_TRACE(told(c));
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::parameter, {shape_of(c), kFloat});
  Shape of_w{Dim(c.groups), Dim(c.outer)};
  std::string letters = "n", of_y = "n", w_letters = "go";
  for (size_t d = 0; d < c.axes.size(); ++d) {
    of_w.emplace_back(c.axes[d].count);
    letters += {"hv"[d], "ij"[d]};
    of_y += "hv"[d];
    w_letters += "ij"[d];
  }
  of_w.emplace_back(c.inner);
  const ValueId w = b.input("w", Role::data, {of_w, kFloat});
  const ValueId y = b.contract(windows_of(b, x, c), w, letters + "gc", w_letters + "c", of_y + "go");
  const ValueId loss = weighed(b, y);
  const std::map<std::string, Tensor> in = random_inputs(g, 3, 2);
  const std::vector<double>&dy = in.at("weights").values, &ws = in.at("w").values;
  std::vector<double> wanted(in.at("x").values.size(), 0);
  for (int64_t n = 0; n < c.images; ++n)
    each_meeting(c, [&](const auto& m, const auto& i, const auto& l) {
      for (int64_t group = 0; group < c.groups; ++group)
        for (int64_t o = 0; o < c.outer; ++o) {
          int64_t at = group * c.outer + o;
          for (size_t d = 0; d < i.size(); ++d) at = at * c.axes[d].count + i[d];
          const double given = dy[(of_windows(c, n, m) * c.groups + group) * c.outer + o];
          for (int64_t k = 0; k < c.inner; ++k)
            wanted[(of_x(c, n, l) * c.groups + group) * c.inner + k] += given * ws[at * c.inner + k];
        }
    });
  expect_near(gradient_of(g, loss, in), wanted);
}

TEST(Phases, RandomConvolutionsEqualTheirSums) {
  std::mt19937 random(11);
  for (int k = 0; k < 150; ++k) {
    check_convolution(drawn(random, false));
    if (HasFatalFailure()) return;
  }
}

TEST(Phases, RandomTransposedConvolutionsEqualTheirSums) {
  std::mt19937 random(12);
  for (int k = 0; k < 100; ++k) {
    check_convolution(drawn(random, true));
    if (HasFatalFailure()) return;
  }
}

// `ties`: few different numbers, so that several elements of a window are the largest.
void check_pooling(const Drawn& c, bool largest, bool ties) {
  SCOPED_TRACE(told(c) + (largest ? ", largest" : ", sums"));
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::parameter, {shape_of(c), kFloat});
  const ValueId views = windows_of(b, x, c);
  std::vector<int> inside;
  for (size_t d = 0; d < c.axes.size(); ++d) inside.push_back(2 + 2 * int(d));
  const ValueId loss = weighed(b, b.reduce(views, largest ? Reduction::max : Reduction::sum, inside));
  std::map<std::string, Tensor> in = random_inputs(g, 3, 2);
  std::vector<double>& xs = in.at("x").values;
  if (ties)
    for (double& v : xs) v = std::round(2 * v);
  const std::vector<double>& dy = in.at("weights").values;
  const int64_t channels = c.groups * c.inner;
  std::vector<double> wanted(xs.size(), 0), most(dy.size(), -1e30), count(dy.size(), 0);
  const auto each = [&](const auto& f) {
    for (int64_t n = 0; n < c.images; ++n)
      each_meeting(c, [&](const auto& m, const auto&, const auto& l) {
        for (int64_t k = 0; k < channels; ++k) f(of_windows(c, n, m) * channels + k, of_x(c, n, l) * channels + k);
      });
  };
  each([&](int64_t window, int64_t) { count[window] += 1; });
  int64_t all = 1;  // a window that reaches into zeros around holds those, too
  for (const Along& a : c.axes) all *= a.count;
  for (size_t k = 0; k < most.size(); ++k) most[k] = count[k] < double(all) ? 0 : most[k];
  each([&](int64_t window, int64_t e) { most[window] = std::max(most[window], xs[e]); });
  std::vector<double> hits(dy.size(), 0);
  for (size_t k = 0; k < hits.size(); ++k) hits[k] = most[k] == 0 ? double(all) - count[k] : 0;
  each([&](int64_t window, int64_t e) { hits[window] += xs[e] == most[window] ? 1 : 0; });
  each([&](int64_t window, int64_t e) {
    if (!largest) wanted[e] += dy[window];
    if (largest && xs[e] == most[window]) wanted[e] += dy[window] / hits[window];
  });
  expect_near(gradient_of(g, loss, in), wanted);
}

TEST(Phases, RandomPoolingsEqualTheirSums) {
  std::mt19937 random(13);
  for (int k = 0; k < 150; ++k) {
    const Drawn c = drawn(random, k % 5 == 0);
    check_pooling(c, k % 3 != 0, k % 2 == 0);
    if (HasFatalFailure()) return;
  }
}

int64_t products_of(const Graph& g, const Node& n) {
  int64_t out = 1;
  std::string seen;
  for (int side = 0; side < 2; ++side)
    for (size_t d = 0; d < n.attributes.indices[side].size(); ++d) {
      const char c = n.attributes.indices[side][d];
      if (seen.find(c) == std::string::npos) out *= g[n.operands[side]].type.shape[d].number();
      seen += c;
    }
  return out;
}

// What this is for: 3 x 3 windows with stride 2 multiply 16 / 9 of what the forward pass does, not 4 times as much.
TEST(Phases, NothingIsPutBetween) {
  const Drawn c{{{32, 1, 0, 3, 2, 1, 1}, {32, 1, 0, 3, 2, 1, 1}}, 2, 1, 4, 8};
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::parameter, {shape_of(c), kFloat});
  const ValueId w = b.input("w", Role::data, {{1, 8, 3, 3, 4}, kFloat});
  const ValueId loss = weighed(b, b.contract(windows_of(b, x, c), w, "nhivjgc", "goijc", "nhvgo"));
  const int64_t forward = products_of(
      g, *std::find_if(g.nodes.begin(), g.nodes.end(), [](const Node& n) { return n.op == Op::contract_; }));
  g.results = differentiate(g, loss, {x});
  g.result_names = {""};
  simplify(g);
  EXPECT_FALSE(puts_between(g));
  int64_t backward = 0;
  for (const Node& n : g.nodes)
    if (n.op == Op::contract_) backward += products_of(g, n);
  EXPECT_EQ(backward * 9, forward * 16);

  check_pooling({{{9, 1, 1, 3, 2, 1, 1}, {8, 1, 1, 3, 2, 1, 1}}, 2, 1, 5, 1}, true, true);
  Graph pooled;
  Builder p(pooled);
  const ValueId of = p.input("x", Role::parameter, {{2, 32, 32, 8}, kFloat});
  const ValueId views = p.windows(
      of, {0, 0, 0, 0}, {1, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 1}, {2, 15, 3, 15, 3, 8});
  pooled.results = differentiate(pooled, weighed(p, p.reduce(views, Reduction::max, {2, 4})), {of});
  pooled.result_names = {""};
  simplify(pooled);
  EXPECT_FALSE(puts_between(pooled));
  for (const Node& n : pooled.nodes) EXPECT_NE(n.op, Op::gather_) << "tensors of the windows' size are not reversed";
}

}  // namespace
}  // namespace lumen::graph

// needs: none. Cayley steps stay on the orthogonal group, go downhill, and find a rotation that is there to be found.
#include "model/compress/rotate/cayley.h"

#include <gtest/gtest.h>

#include <cmath>

#include "graph/ir/eval.h"
#include "model/compress/equivalent_transform/equivalent_transform.h"

namespace lumen::model::compress {
namespace {

constexpr int64_t kCayleyOrder = 12;

std::vector<double> drawn_square(uint32_t salt) {
  std::vector<double> out(kCayleyOrder * kCayleyOrder);
  for (size_t i = 0; i < out.size(); ++i) out[i] = graph::uniform_random(5, salt, i) - 0.5;
  return out;
}

double off_orthogonal(const std::vector<double>& r) {
  const std::vector<double> gram = multiply_square(transposed_square(r, kCayleyOrder), r, kCayleyOrder);
  double off = 0;
  for (int64_t i = 0; i < kCayleyOrder * kCayleyOrder; ++i)
    off = std::max(off, std::abs(gram[i] - (i % (kCayleyOrder + 1) == 0 ? 1 : 0)));
  return off;
}

// |a r - b|^2 and its gradient.
double cayley_distance(const std::vector<double>& a, const std::vector<double>& r, const std::vector<double>& b,
                       std::vector<double>* gradient) {
  std::vector<double> e = multiply_square(a, r, kCayleyOrder);
  double sum = 0;
  for (size_t i = 0; i < e.size(); ++i) {
    e[i] -= b[i];
    sum += e[i] * e[i];
    e[i] *= 2;
  }
  *gradient = multiply_square(transposed_square(a, kCayleyOrder), e, kCayleyOrder);
  return sum;
}

TEST(Cayley, ProductsAreThoseOfMatrices) {
  const std::vector<double> a = drawn_square(1), b = drawn_square(2), c = multiply_square(a, b, kCayleyOrder);
  for (int64_t i = 0; i < kCayleyOrder; ++i)
    for (int64_t j = 0; j < kCayleyOrder; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < kCayleyOrder; ++k) sum += a[i * kCayleyOrder + k] * b[k * kCayleyOrder + j];
      EXPECT_NEAR(c[i * kCayleyOrder + j], sum, 1e-14);
    }
}

TEST(Cayley, StaysOrthogonalWhateverTheGradient) {
  for (const double momentum : {0.0, 0.9}) {
    CayleyDescent d(kCayleyOrder, Rotation::hadamard(kCayleyOrder, 3).matrix(), momentum);
    for (uint32_t step = 0; step < 50; ++step) {
      std::vector<double> gradient = drawn_square(step);
      for (double& g : gradient) g *= std::pow(10.0, static_cast<int>(step % 7) - 3);
      d.step(gradient, 1);
      EXPECT_LT(off_orthogonal(d.matrix()), 1e-12);
    }
  }
}

TEST(Cayley, TheFirstStepIsTheFormulasAndItsUnitDoesNotMatter) {
  const std::vector<double> start = Rotation::random(kCayleyOrder, 4).matrix();
  std::vector<double> g = drawn_square(9);
  CayleyDescent one(kCayleyOrder, start), other(kCayleyOrder, start);
  one.step(g, 1e-4);
  for (double& x : g) x *= 1024;
  other.step(g, 1e-4);
  // W = (R G^T - G R^T) / 2 where M = -G; R moves by tau W R, to first order.
  const std::vector<double> gr = multiply_square(g, transposed_square(start, kCayleyOrder), kCayleyOrder);
  std::vector<double> w(gr.size());
  double norm = 0;
  for (int64_t j = 0; j < kCayleyOrder; ++j) {
    double sum = 0;
    for (int64_t i = 0; i < kCayleyOrder; ++i) {
      w[i * kCayleyOrder + j] = 0.5 * (gr[j * kCayleyOrder + i] - gr[i * kCayleyOrder + j]);
      sum += std::abs(w[i * kCayleyOrder + j]);
    }
    norm = std::max(norm, sum);
  }
  const std::vector<double> moved = multiply_square(w, start, kCayleyOrder);
  for (size_t i = 0; i < w.size(); ++i) {
    EXPECT_NEAR(one.matrix()[i], other.matrix()[i], 1e-15);
    EXPECT_NEAR(one.matrix()[i] - start[i], 1e-4 / norm * moved[i], 1e-8);
  }
}

TEST(Cayley, FindsARotation) {
  const std::vector<double> a = drawn_square(1), truth = Rotation::random(kCayleyOrder, 1).matrix();
  // A start that a path leads from: the same determinant.
  CayleyDescent away(kCayleyOrder, truth);
  for (uint32_t step = 0; step < 6; ++step) away.step(drawn_square(20 + step), 1);
  const std::vector<double> b = multiply_square(a, truth, kCayleyOrder);
  CayleyDescent d(kCayleyOrder, away.matrix());
  std::vector<double> gradient;
  const double first = cayley_distance(a, d.matrix(), b, &gradient);
  for (int step = 0; step < 400; ++step) {
    d.step(gradient, 0.5 * (1 + std::cos(3.14159 * step / 400)));
    (void)cayley_distance(a, d.matrix(), b, &gradient);
  }
  EXPECT_LT(cayley_distance(a, d.matrix(), b, &gradient), 1e-3 * first);
}

TEST(Cayley, NoGradientNoStep) {
  const std::vector<double> start = Rotation::hadamard(kCayleyOrder, 3).matrix();
  CayleyDescent d(kCayleyOrder, start);
  d.step(std::vector<double>(kCayleyOrder * kCayleyOrder, 0), 1);
  EXPECT_EQ(d.matrix(), start);
}

}  // namespace
}  // namespace lumen::model::compress

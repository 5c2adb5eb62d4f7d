// needs: cpu. Parameters under rotations are those that the rewrite makes, and gradients of rotations are differences.
#include "model/compress/rotate/rotated_weights.h"

#include "graph/ir/eval.h"
#include "tests/model/compress/rotate/rotate_case.h"

namespace lumen::model::compress {
namespace {

TEST(RotatedWeights, AreThoseOfTheRewrite) {
  const arch::Model m = rotate_model();
  const std::vector<graph::RotationSite> sites = rotate_sites(m);
  RotatedWeights w(rotate_engine(), m, sites);
  begin_rotations(w, 5);
  ASSERT_EQ(w.spaces().size(), 5u) << "two heads of two layers, and the stream";
  arch::Model turned = m;
  for (const graph::RotationSite& site : sites) {
    std::vector<Rotation> r;
    for (int64_t b = 0; b < site.blocks; ++b) r.push_back(Rotation::hadamard(site.width, 5 + b));
    rotate(turned, site, r);
  }
  int changed = 0;
  for (const auto& [name, weight] : turned.weights) {
    const std::vector<float> got = w.values(name);
    changed += w.turns(name);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], weight.f32()[i], 1e-5) << name;
  }
  EXPECT_EQ(changed, 2 * 7 + 2) << "all matrices";
}

// R times a small turn of its rows i and j.
std::vector<double> turned_by(const std::vector<double>& r, int64_t n, int64_t i, int64_t j, double angle) {
  std::vector<double> out = r;
  for (int64_t k = 0; k < n; ++k) {
    out[i * n + k] = std::cos(angle) * r[i * n + k] - std::sin(angle) * r[j * n + k];
    out[j * n + k] = std::sin(angle) * r[i * n + k] + std::cos(angle) * r[j * n + k];
  }
  return out;
}

// Whether gradients of a function of the rotations are its differences.
void expect_gradients(RotatedWeights& w, const std::function<double()>& value) {
  const std::vector<std::vector<double>> gradients = w.gradients();
  for (size_t s = 0; s < w.spaces().size(); ++s) {
    const int64_t n = w.spaces()[s].width, i = 2, j = n - 3;
    const std::vector<double> r = w.rotation(s);
    constexpr double kAngle = 1e-2;
    w.set(s, turned_by(r, n, i, j, kAngle));
    const double after = value();
    w.set(s, turned_by(r, n, i, j, -kAngle));
    const double before = value();
    w.set(s, r);
    double slope = 0, size = 0;
    for (int64_t k = 0; k < n; ++k) {
      slope += gradients[s][j * n + k] * r[i * n + k] - gradients[s][i * n + k] * r[j * n + k];
      size += std::abs(gradients[s][j * n + k] * r[i * n + k]) + std::abs(gradients[s][i * n + k] * r[j * n + k]);
    }
    EXPECT_GT(size, 0);
    EXPECT_NEAR((after - before) / (2 * kAngle), slope, 2e-3 * size) << s;
  }
}

TEST(RotatedWeights, GradientsOfParametersAreThoseOfRotations) {
  const arch::Model m = rotate_model();
  RotatedWeights w(rotate_engine(), m, rotate_sites(m));
  begin_rotations(w);
  std::map<std::string, std::vector<float>> slopes;
  uint32_t salt = 0;
  for (const auto& [name, weight] : m.weights) {
    ++salt;
    for (size_t i = 0; i < weight.f32().size(); ++i) slopes[name].push_back(graph::uniform_random(3, salt, i) - 0.5F);
    w.pull(name, slopes[name]);
  }
  expect_gradients(w, [&] {
    double sum = 0;
    for (const auto& [name, by] : slopes) {
      const std::vector<float> values = w.values(name);
      for (size_t i = 0; i < by.size(); ++i) sum += double{by[i]} * values[i];
    }
    return sum;
  });
}

TEST(RotatedWeights, MomentsTurnWithWhatIsRead) {
  const arch::Model m = rotate_model();
  RotatedWeights w(rotate_engine(), m, rotate_sites(m));
  begin_rotations(w);
  std::map<std::string, std::vector<float>> grams;
  std::map<std::string, std::vector<double>> by;
  const auto value = [&] {
    double sum = 0;
    for (const auto& [name, gram] : grams) {
      const RotatedWeights::Moments moments = w.moments(name, gram, 64);
      for (size_t c = 0; c < 64; ++c) sum += by[name][c] * moments.diagonal[c];
    }
    return sum;
  };
  for (const char* name : {"layers.0.wq", "layers.0.wo", "layers.1.wo"}) {
    ASSERT_TRUE(w.reads_turned(name));
    std::vector<float> x(64 * 64), gram(64 * 64);
    for (size_t i = 0; i < x.size(); ++i) x[i] = graph::uniform_random(3, 99, i) * (i % 64 == 5 ? 8.0F : 1.0F);
    double trace = 0;
    for (int i = 0; i < 64; ++i)
      for (int j = 0; j < 64; ++j) {
        for (int k = 0; k < 64; ++k) gram[i * 64 + j] += x[k * 64 + i] * x[k * 64 + j];
        if (i == j) trace += gram[i * 64 + j];
      }
    grams[name] = gram;
    for (int c = 0; c < 64; ++c) by[name].push_back(0.1 + c % 7);
    const RotatedWeights::Moments moments = w.moments(name, gram, 64);
    double sum = 0;
    for (const float d : moments.diagonal) sum += d;
    EXPECT_NEAR(sum, trace, 1e-4 * trace) << "a rotation keeps the sum";
    w.pull_moments(name, moments, by[name], 64);
  }
  EXPECT_FALSE(w.reads_turned("layers.0.w2"));
  expect_gradients(w, value);
}

}  // namespace
}  // namespace lumen::model::compress

// Needs: cpu. Measures of images against values that are known: noise of a known size, shifted and scaled normal
// distributions, angles.
#include "apps/diffuse/quality.h"

#include <cmath>

#include "apps/draws/draws.h"
#include "base/error.h"
#include "tests/model/tiny.h"

namespace lumen::diffuse {

using model::engine;
using model::test_library;

namespace {

TEST(ImageQualities, PeakSignalToNoise) {
  // Ranges 2 and 1, errors 0.1 and 0.1: 26.02 and 20 dB.
  const std::vector<float> a = {-1, 1, 0, 0, 0, 0, 1, 0.5F};
  std::vector<float> b = a;
  for (float& v : b) v += 0.1F;
  EXPECT_NEAR(peak_signal_to_noise(a, b, 4), (20 * std::log10(2 / 0.1) + 20) / 2, 1e-4);
  EXPECT_EQ(peak_signal_to_noise(a, a, 4), kMostDecibels);
}

TEST(ImageQualities, StructuralSimilarity) {
  constexpr int64_t kSide = 16;
  std::vector<float> a(kSide * kSide), flat(kSide * kSide, -0.2F), noisy;
  for (int64_t i = 0; i < kSide * kSide; ++i) a[i] = float(std::sin(double(i % kSide)) * std::cos(double(i / kSide)));
  EXPECT_NEAR(structural_similarity(a, a, kSide), 1, 1e-12);
  // Two flat images: (2 m1 m2 + C1) / (m1^2 + m2^2 + C1), of shades 0.4 and 0.6 of 1.
  const std::vector<float> other(kSide * kSide, 0.2F);
  EXPECT_NEAR(structural_similarity(flat, other, kSide), (2 * 0.4 * 0.6 + 1e-4) / (0.16 + 0.36 + 1e-4), 1e-6);
  double last = 1;
  for (const double size : {0.05, 0.2, 0.8}) {
    noisy = a;
    Draws draws(4);
    for (float& v : noisy) v += float(size * draws.normal());
    EXPECT_LT(structural_similarity(a, noisy, kSide), last);
    last = structural_similarity(a, noisy, kSide);
  }
  EXPECT_THROW((void)structural_similarity(a, a, 8), Error);
}

TEST(ImageQualities, FrechetDistance) {
  // Features whose covariances are exactly diagonal: +-s along each axis in turn.
  constexpr int64_t kWidth = 5;
  const auto cloud = [](double spread, double shift) {
    std::vector<float> out;
    for (int64_t axis = 0; axis < kWidth; ++axis)
      for (const int sign : {-1, 1})
        for (int64_t k = 0; k < kWidth; ++k)
          out.push_back(float((k == axis ? sign * spread * double(k + 1) : 0) + shift));
    return out;
  };
  double expected = kWidth * 0.5 * 0.5;  // the means
  for (int64_t k = 1; k <= kWidth; ++k) expected += std::pow(double(k) * (3 - 2) * std::sqrt(2.0 / 9), 2);
  EXPECT_NEAR(frechet_distance(cloud(2, 0), cloud(3, 0.5), kWidth), expected, 1e-6);
  EXPECT_NEAR(frechet_distance(cloud(2, 0), cloud(2, 0), kWidth), 0, 1e-9);
  // Of turned clouds: the distance of the normal distributions stays.
  std::vector<float> a, b;
  Draws draws(7);
  for (int i = 0; i < 200; ++i) {
    const double x = draws.normal(), y = draws.normal();
    for (auto* to : {&a, &b}) {
      to->push_back(float(x));
      to->push_back(float(to == &a ? x + 1e-3 * y : y));
    }
  }
  EXPECT_GT(frechet_distance(a, b, 2), 0.3);
  EXPECT_NEAR(frechet_distance(a, b, 2), frechet_distance(b, a, 2), 1e-6);
  EXPECT_THROW((void)frechet_distance(std::span(a).first(2), b, 2), Error);
}

TEST(ImageQualities, CosineDistance) {
  EXPECT_NEAR(cosine_distance(std::vector<float>{1, 0, 2, 0}, std::vector<float>{0, 3, 5, 0}, 2), 0.5, 1e-12);
  EXPECT_EQ(cosine_distance(std::vector<float>{0, 0}, std::vector<float>{0, 0}, 2), 0);
}

TEST(ImageQualities, AClassifierIsTrainedOnce) {
  const apps::Images images = apps::made_up_images(300, 12, 1);
  apps::NetworkSettings s;
  s.family = "small_images";
  s.size = "xs";
  s.config = {{"size", 12}, {"classes", 4}};
  const model::TestFolder folder;
  int64_t steps = 0;
  const auto told = [&](int64_t, double) { ++steps; };
  const auto first = image_classifier(engine(), *test_library(), s, images, folder.path() / "c", 120, told);
  EXPECT_EQ(steps, 120);
  const auto again = image_classifier(engine(), *test_library(), s, images, folder.path() / "c", 120, told);
  EXPECT_EQ(steps, 120) << "it is there";
  std::vector<int64_t> all;
  for (int64_t i = 0; i < images.count; ++i) all.push_back(i);
  const std::vector<float> x = apps::framed(images, all, 12);
  const Classified a = classified(*first, x, 64), b = classified(*again, x, 100);
  EXPECT_EQ(a.classes, b.classes) << "batches are filled up";
  EXPECT_EQ(a.width, 64);
  EXPECT_EQ(std::ssize(a.features), 300 * 64);
  EXPECT_GT(a.accuracy(images.labels), 0.8);
}

}  // namespace
}  // namespace lumen::diffuse

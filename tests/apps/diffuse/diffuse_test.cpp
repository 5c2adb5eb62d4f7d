// Needs: cpu. Diffusion: batches are every image once, samplers follow a known velocity to its end, and a small
// transformer trained on made-up shapes draws shapes.
#include "apps/diffuse/diffuse.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "tests/model/tiny.h"

namespace lumen::diffuse {

using model::engine;
using model::test_library;

namespace {

// Images are all of one shade, which the label gives: the velocity at x is (x - shade) / t.
constexpr const char* kFlat = R"(
model flat(cfg) {
  config { size : i32 = 4; channels : i32 = 1; classes : i32 = 3 }
  param scale : f32[2, 2], init ones
  fn guided(x: f32[B, cfg.size, cfg.size, cfg.channels], t: f32[B], label: i32[B], guidance: f32) -> f32[B, cfg.size, cfg.size, cfg.channels] =
    (x - reshape(f32(label) * 0.5 - 0.5, [B, 1, 1, 1]) * guidance * scale[0, 0]) / reshape(t, [B, 1, 1, 1])
}
)";

TEST(Diffusion, SamplersEndWhereTheVelocityPoints) {
  auto texts = model::arch::Library::builtin();
  texts->add_model_text(std::make_shared<const Source>(Source{"flat.lum", kFlat}));
  apps::NetworkSettings s;
  s.family = "flat";
  apps::Network network(engine(), *texts, s);
  const std::vector<int32_t> labels = {0, 1, 2, 2, 1};
  for (const char* name : {"euler", "heun", "dpm2"})
    for (const int64_t steps : {1, 7, 20}) {
      const Sampling how{diffusion_sampler(name), steps, 1, 5, 2};
      const std::vector<float> images = sampled(network, labels, how);
      ASSERT_EQ(images.size(), 5 * 16U);
      for (size_t i = 0; i < images.size(); ++i)
        EXPECT_NEAR(images[i], labels[i / 16] * 0.5 - 0.5, 1e-5) << name << " " << steps << " at " << i;
    }
  EXPECT_THROW((void)diffusion_sampler("ancestral"), Error);
  EXPECT_THROW((void)sampled(network, {4}, {}), Error);
}

// The same of noise that comes in ten steps: what is given is the noise.
constexpr const char* kGrains = R"(
model grains(cfg) {
  config { size : i32 = 4; channels : i32 = 1; classes : i32 = 3; noise_steps : i32 = 10 }
  param scale : f32[2, 2], init ones
  fn signal(t: f32[B]) -> f32[B] = exp(t * t * -3.0)
  fn guided(x: f32[B, cfg.size, cfg.size, cfg.channels], t: f32[B], label: i32[B], guidance: f32) -> f32[B, cfg.size, cfg.size, cfg.channels] {
    let kept = reshape(signal(t), [B, 1, 1, 1])
    return (x - sqrt(kept) * reshape(f32(label) * 0.5 - 0.5, [B, 1, 1, 1]) * guidance * scale[0, 0]) / sqrt(1.0 - kept)
  }
}
)";

TEST(Diffusion, NoiseIsTakenAwayInSteps) {
  auto texts = model::arch::Library::builtin();
  texts->add_model_text(std::make_shared<const Source>(Source{"grains.lum", kGrains}));
  apps::NetworkSettings s;
  s.family = "grains";
  apps::Network network(engine(), *texts, s);
  ASSERT_TRUE(gives_noise(network));
  ASSERT_EQ(usual_sampler(network), DiffusionSampler::ddim);
  for (const int64_t steps : {1, 5, 10}) {
    const std::vector<float> images = sampled(network, {0, 1, 2}, {DiffusionSampler::ddim, steps, 1, 5, 3});
    for (size_t i = 0; i < images.size(); ++i) EXPECT_NEAR(images[i], double(i / 16) * 0.5 - 0.5, 1e-4) << steps;
  }
  EXPECT_THROW((void)sampled(network, {0}, {DiffusionSampler::euler, 5, 1, 5, 1}), Error);
}

// Shares of variance are those of Ho and others (2020), T = 1000; a few steps of training lower the loss.
TEST(Diffusion, ATransformerLearnsNoiseInSteps) {
  apps::NetworkSettings s;
  s.family = "dit";
  s.config = {{"size", 12},   {"patch", 3}, {"classes", 4},       {"layers", 1},
              {"hidden", 32}, {"heads", 2}, {"noise_steps", 1000}};
  s.optimizer.weight_decay = 0;
  apps::Network network(engine(), *test_library(), s);
  apps::NetworkInputs in;
  in.symbols = {{"B", 3}};
  in.numbers["t"] = {0.001F, 0.5F, 1};
  const std::vector<float> shares = network.run("signal", in);
  double expected = 1;
  for (int i = 0; i < 1000; ++i) {
    expected *= 1 - (1e-4 + (0.02 - 1e-4) * i / 999);
    const int at = i == 0 ? 0 : i == 499 ? 1 : i == 999 ? 2 : -1;
    if (at >= 0) {
      EXPECT_NEAR(shares[at] / expected, 1, 1e-4) << i;
    }
  }
  const apps::Images images = apps::made_up_images(200, 12, 1);
  double first = 0, last = 0;
  for (int64_t step = 0; step < 150; ++step) {
    const double loss = network.step("loss", diffusion_batch(images, network, step, 16), 2e-3);
    (step < 10 ? first : last) += step < 10 || step >= 140 ? loss / 10 : 0;
  }
  EXPECT_LT(last, 0.6 * first);
  for (const float x : sampled(network, {0, 1}, {DiffusionSampler::ddim, 5, 1, 5, 2})) ASSERT_TRUE(std::isfinite(x));
  EXPECT_THROW((void)sampled(network, {0}, {}), Error);
}

TEST(Diffusion, EveryImageComesOnceInEachPass) {
  apps::NetworkSettings s;
  s.family = "dit";
  s.config = {{"size", 12}, {"patch", 4}, {"classes", 4}, {"layers", 1}, {"hidden", 32}};
  const apps::Network network(engine(), *test_library(), s);
  apps::Images images = apps::made_up_images(10, 10, 1);
  for (int i = 0; i < 10; ++i) images.pixels[i * 100] = 20 * i;  // known by the first pixel
  std::multiset<int> seen;
  for (int64_t step = 0; step < 5; ++step) {
    const apps::NetworkInputs batch = diffusion_batch(images, network, step, 4);
    const std::vector<float>& x = batch.numbers.at("images");
    ASSERT_EQ(x.size(), 4 * 144U);
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(x[i * 144], -1) << "black around";
      const int image = std::lround((x[i * 144 + 13] + 1) * 127.5) / 20;
      EXPECT_EQ(batch.integers.at("shown")[i], images.labels[image]);
      seen.insert(image);
    }
  }
  for (int i = 0; i < 10; ++i) EXPECT_EQ(seen.count(i), 2U) << i;
  apps::Images large = apps::made_up_images(2, 14, 1);
  EXPECT_THROW((void)diffusion_batch(large, network, 0, 2), Error);
}

TEST(Diffusion, ATransformerLearnsShapes) {
  apps::NetworkSettings s;
  s.family = "dit";
  s.config = {{"size", 12}, {"patch", 3}, {"classes", 4}, {"layers", 2}, {"hidden", 32}, {"heads", 2}};
  s.optimizer.weight_decay = 0;
  s.optimizer.ema_decay = 0.99;
  apps::Network network(engine(), *test_library(), s);
  const apps::Images images = apps::made_up_images(400, 12, 1);
  double first = 0, last = 0;
  for (int64_t step = 0; step < 600; ++step) {
    const double loss = network.step("loss", diffusion_batch(images, network, step, 32), 2e-3);
    (step < 20 ? first : last) += step < 20 || step >= 580 ? loss / 20 : 0;
  }
  EXPECT_LT(last, 0.45 * first);
  std::vector<int32_t> labels;
  for (int i = 0; i < 24; ++i) labels.push_back(i % 4);
  const std::vector<float> drawn = sampled(network, labels, {.steps = 12, .guidance = 2, .seed = 3, .batch = 24});
  double dark = 0;
  for (const float x : drawn) {
    ASSERT_TRUE(std::isfinite(x));
    dark += x < -0.7F ? 1.0 / drawn.size() : 0;
  }
  EXPECT_GT(dark, 0.35) << "shapes stand before black";
  // Squares cover more than crosses, discs more than rings.
  std::map<int, double> covered;
  for (size_t i = 0; i < drawn.size(); ++i) covered[labels[i / 144]] += drawn[i] > 0 ? 1.0 / (6 * 144) : 0;
  EXPECT_GT(covered[1], covered[2]);
  EXPECT_GT(covered[0], covered[3]);
}

TEST(Diffusion, AUNetLearnsShapes) {
  apps::NetworkSettings s;
  s.family = "unet";
  s.config = {{"size", 12}, {"width", 12}, {"hidden", 32}, {"waves", 32}, {"classes", 4}};
  s.optimizer.weight_decay = 0;
  s.optimizer.ema_decay = 0.98;
  apps::Network network(engine(), *test_library(), s);
  const apps::Images images = apps::made_up_images(400, 12, 1);
  double first = 0, last = 0;
  for (int64_t step = 0; step < 240; ++step) {
    const double loss = network.step("loss", diffusion_batch(images, network, step, 16), 3e-3);
    (step < 20 ? first : last) += step < 20 || step >= 220 ? loss / 20 : 0;
  }
  EXPECT_LT(last, 0.45 * first);
  std::vector<int32_t> labels;
  for (int i = 0; i < 24; ++i) labels.push_back(i % 4);
  const std::vector<float> drawn = sampled(network, labels, {.steps = 12, .guidance = 2, .seed = 3, .batch = 24});
  double dark = 0;
  for (const float x : drawn) {
    ASSERT_TRUE(std::isfinite(x));
    dark += x < -0.7F ? 1.0 / drawn.size() : 0;
  }
  EXPECT_GT(dark, 0.35) << "shapes stand before black";
}

}  // namespace
}  // namespace lumen::diffuse

// Needs: cpu. What a client does in a round: gradients of the three strategies against a plain reference in double, the
// upload of changes with and without what rounding left over.
#include "apps/federate/local.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "apps/draws/draws.h"
#include "base/error.h"
#include "tests/model/tiny.h"

namespace lumen::federate {

using model::engine;
using model::test_library;

namespace {

constexpr const char* kLetterText = R"(
model two_layers(cfg) {
  config { classes : i32 = 128; letters : i32 = 2; inner : i32 = 6 }
  param table : f32[cfg.classes, 3], init normal 0.8
  param up : f32[cfg.inner, 6], init normal 0.6
  param level : f32[cfg.inner], init normal 0.1
  param down : f32[cfg.classes, cfg.inner], init normal 0.5
  fn logits(letters: i32[B, cfg.letters]) -> f32[B, cfg.classes] {
    let x = reshape(gather(table, letters), [B, 6])
    return linear(relu(linear(x, up) + level), down)
  }
  fn loss(letters: i32[B, cfg.letters], shown: i32[B], seed: u32) -> f32[] = mean_cross_entropy(logits(letters), shown)
}
)";

model::arch::LibraryRef letters_library() {
  auto own = model::arch::Library::builtin();
  own->add_model_text(std::make_shared<const Source>(Source{"two_layers.lum", kLetterText}));
  return own;
}

apps::NetworkSettings letters_settings() {
  apps::NetworkSettings s;
  s.family = "two_layers";
  return s;
}

LocalSettings int8_settings() {
  LocalSettings s;
  const FormatLibrary& formats = test_library()->formats();
  s.formats = {formats.get("int8_row"), formats.get("int8"), nullptr, formats.get("int8_row")};
  s.batch = 8;
  return s;
}

constexpr int64_t kIn = 6, kInner = 6, kOut = 128;

struct PlainGradients {
  double loss = 0;
  std::vector<double> up, level, down, table;
};

double rounded(double x, double scale, double most) {
  return scale * std::clamp(std::nearbyint(x / scale), -most, most);
}

std::vector<double> rows_rounded(const std::vector<float>& w, int64_t rows) {
  std::vector<double> out(w.begin(), w.end());
  const int64_t columns = out.size() / rows;
  for (int64_t r = 0; r < rows; ++r) {
    double most = 0;
    for (int64_t c = 0; c < columns; ++c) most = std::max(most, std::fabs(out[r * columns + c]));
    for (int64_t c = 0; c < columns; ++c) {
      double& x = out[r * columns + c];
      x = most > 0 ? rounded(x, most / 127, 127) : 0;
    }
  }
  return out;
}

// Forward and backward by hand. `quantizes`: operands are rounded; `share`: ranges are this much of the largest.
PlainGradients reference(const Weights& at, const Examples& data, std::span<const int64_t> batch, bool quantizes,
                         bool masks, double share) {
  const auto &up0 = at.at("up"), &down0 = at.at("down"), &table = at.at("table"), &level = at.at("level");
  const std::vector<double> up = quantizes ? rows_rounded(up0, kInner) : std::vector<double>(up0.begin(), up0.end());
  const std::vector<double> down =
      quantizes ? rows_rounded(down0, kOut) : std::vector<double>(down0.begin(), down0.end());
  const int64_t n = std::ssize(batch);
  std::vector<double> x(n * kIn), z(n * kInner);
  for (int64_t b = 0; b < n; ++b)
    for (int64_t k = 0; k < kIn; ++k) x[b * kIn + k] = table[data.letters[batch[b] * 2 + k / 3] * 3 + k % 3];
  const auto largest = [](const std::vector<double>& v) {
    double most = 0;
    for (const double e : v) most = std::max(most, std::fabs(e));
    return most;
  };
  const auto passed = [&](const std::vector<double>& v, double range) {
    std::vector<double> out = v;
    if (quantizes)
      for (double& e : out) e = rounded(e, range / 127, 127);
    return out;
  };
  const double range_x = largest(x) * share;
  const std::vector<double> xq = passed(x, range_x);
  for (int64_t b = 0; b < n; ++b)
    for (int64_t j = 0; j < kInner; ++j) {
      double sum = level[j];
      for (int64_t k = 0; k < kIn; ++k) sum += up[j * kIn + k] * xq[b * kIn + k];
      z[b * kInner + j] = sum;
    }
  std::vector<double> h = z;
  for (double& e : h) e = std::max(0.0, e);
  // The range of what the second product reads is that of float activations: calibration runs in float.
  std::vector<double> h_float(n * kInner);
  for (int64_t b = 0; b < n; ++b)
    for (int64_t j = 0; j < kInner; ++j) {
      double sum = level[j];
      for (int64_t k = 0; k < kIn; ++k) sum += double{up0[j * kIn + k]} * x[b * kIn + k];
      h_float[b * kInner + j] = std::max(0.0, sum);
    }
  const double range_h = largest(h_float) * share;
  const std::vector<double> hq = passed(h, range_h);
  PlainGradients out;
  out.up.resize(up.size());
  out.level.resize(kInner);
  out.down.resize(down.size());
  out.table.resize(table.size());
  for (int64_t b = 0; b < n; ++b) {
    std::vector<double> p(kOut);
    double sum = 0;
    for (int64_t o = 0; o < kOut; ++o) {
      double logit = 0;
      for (int64_t j = 0; j < kInner; ++j) logit += down[o * kInner + j] * hq[b * kInner + j];
      sum += p[o] = std::exp(logit);
    }
    const int32_t answer = data.shown[batch[b]];
    out.loss -= std::log(p[answer] / sum) / n;
    std::vector<double> dh(kInner);
    for (int64_t o = 0; o < kOut; ++o) {
      const double d = (p[o] / sum - (o == answer)) / n;
      for (int64_t j = 0; j < kInner; ++j) {
        out.down[o * kInner + j] += d * hq[b * kInner + j];
        dh[j] += d * down[o * kInner + j];
      }
    }
    for (int64_t j = 0; j < kInner; ++j) {
      const double h_here = h[b * kInner + j];
      if (masks && std::fabs(h_here) > range_h * (1 + 0.5 / 127)) dh[j] = 0;
      if (h_here <= 0) dh[j] = 0;
      out.level[j] += dh[j];
      for (int64_t k = 0; k < kIn; ++k) {
        out.up[j * kIn + k] += dh[j] * xq[b * kIn + k];
        const bool clipped = masks && std::fabs(x[b * kIn + k]) > range_x * (1 + 0.5 / 127);
        if (!clipped) out.table[data.letters[batch[b] * 2 + k / 3] * 3 + k % 3] += dh[j] * up[j * kIn + k];
      }
    }
  }
  return out;
}

void expect_near(const std::vector<float>& got, const std::vector<double>& wanted, const char* what) {
  ASSERT_EQ(got.size(), wanted.size()) << what;
  double most = 0;
  for (const double x : wanted) most = std::max(most, std::fabs(x));
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], 2e-4 * most + 1e-7) << what << " " << i;
}

Examples some_letters() {
  return examples_of("the quick brown fox jumps over the lazy dog and runs away from it all", 2);
}

TEST(LocalTraining, GradientsAreThoseOfAPlainReference) {
  const model::arch::LibraryRef texts = letters_library();
  apps::Network network(engine(), *texts, letters_settings());
  LocalTrainer trainer(engine(), network, int8_settings());
  const Weights at = weights_of(network);
  const Examples data = some_letters();
  const std::vector<int64_t> batch = {0, 5, 9, 14, 22, 30, 41, 55};
  for (const ClientStrategy s : {ClientStrategy::whole, ClientStrategy::after, ClientStrategy::aware}) {
    const auto got = trainer.gradients(at, data, batch, s);
    const PlainGradients wanted = reference(at, data, batch, s != ClientStrategy::whole, s == ClientStrategy::aware, 1);
    EXPECT_NEAR(got.loss, wanted.loss, 1e-4 * wanted.loss) << strategy_name(s);
    expect_near(got.gradients.at("up"), wanted.up, "up");
    expect_near(got.gradients.at("level"), wanted.level, "level");
    expect_near(got.gradients.at("down"), wanted.down, "down");
    expect_near(got.gradients.at("table"), wanted.table, "table");
  }
}

// Each row's first number swings to and fro as if its gradient were noise; the others want to go to 0.3 by small steps,
// which a scale for the row rounds away. What rounding leaves over brings them there.
TEST(Uploads, ConvergeWithWhatRoundingLeavesOverAndNotWithout) {
  const model::arch::LibraryRef texts = letters_library();
  const apps::Network network(engine(), *texts, letters_settings());
  const FormatRef format = test_library()->formats().get("int4_row");
  const auto farthest = [&](bool feedback) {
    Weights w = weights_of(network), residual;
    for (auto& [name, numbers] : w) std::fill(numbers.begin(), numbers.end(), 0.0F);
    for (int step = 0; step < 200; ++step) {
      Weights to = w;
      for (auto& [name, numbers] : to)
        for (size_t i = 0; i < numbers.size(); ++i)
          numbers[i] += i % kInner == 0 ? (step % 2 == 0 ? 1 : -1) : 0.05F * (0.3F - numbers[i]);
      const ClientChange sent = encoded_change(engine(), network, format, w, to, feedback ? &residual : nullptr);
      for (const auto& [name, change] : decoded_change(engine(), network, format, sent))
        for (size_t i = 0; i < change.size(); ++i) w[name][i] += change[i];
    }
    double most = 0;
    for (size_t i = 0; i < w["up"].size(); ++i)
      if (i % kInner != 0) most = std::max(most, std::fabs(w["up"][i] - 0.3));
    return most;
  };
  EXPECT_LT(farthest(true), 0.1);
  EXPECT_GT(farthest(false), 0.25);
}

TEST(Uploads, AreRefusedWhenTheyAreNotTheNetworks) {
  const model::arch::LibraryRef texts = letters_library();
  const apps::Network network(engine(), *texts, letters_settings());
  const FormatRef format = test_library()->formats().get("int8_row");
  const Weights w = weights_of(network);
  Weights to = w;
  to["up"][3] += 1;
  const ClientChange good = encoded_change(engine(), network, format, w, to, nullptr);
  EXPECT_EQ(good.bytes(), change_bytes(network, format));
  EXPECT_NEAR(decoded_change(engine(), network, format, good).at("up")[3], 1, 0.01);
  ClientChange bad = good;
  bad.tensors.pop_back();
  EXPECT_THROW((void)decoded_change(engine(), network, format, bad), Error);
  bad = good;
  bad.tensors[0].second.pop_back();
  EXPECT_THROW((void)decoded_change(engine(), network, format, bad), Error);
  bad = good;
  bad.tensors[0].first = "nobody";
  EXPECT_THROW((void)decoded_change(engine(), network, format, bad), Error);
  to["level"][0] = std::numeric_limits<float>::infinity();  // a vector, in f32
  EXPECT_THROW(
      (void)decoded_change(engine(), network, format, encoded_change(engine(), network, format, w, to, nullptr)),
      Error);
}

TEST(LocalTraining, HasTheSameBitsAgain) {
  const model::arch::LibraryRef texts = letters_library();
  apps::Network network(engine(), *texts, letters_settings());
  LocalTrainer trainer(engine(), network, int8_settings());
  const Weights at = weights_of(network);
  const Examples data = some_letters();
  std::vector<int64_t> all;
  for (int64_t i = 0; i < data.count(); ++i) all.push_back(i);
  for (const ClientStrategy s : {ClientStrategy::whole, ClientStrategy::after, ClientStrategy::aware}) {
    const LocalResult one = trainer.train(at, data, all, s, 3), two = trainer.train(at, data, all, s, 3),
                      other = trainer.train(at, data, all, s, 4);
    EXPECT_EQ(one.weights, two.weights) << strategy_name(s);
    EXPECT_NE(one.weights, other.weights) << strategy_name(s);
    EXPECT_EQ(one.off > 0, s != ClientStrategy::whole);
  }
}

TEST(LocalTraining, RefusesActivationsOfManyScales) {
  const model::arch::LibraryRef texts = letters_library();
  apps::Network network(engine(), *texts, letters_settings());
  LocalSettings settings = int8_settings();
  settings.formats.activations = settings.formats.weights;
  EXPECT_THROW(LocalTrainer(engine(), network, settings), Error);
}

}  // namespace
}  // namespace lumen::federate

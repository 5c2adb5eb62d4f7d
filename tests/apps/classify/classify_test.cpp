// Needs: cpu. Classifiers: batches and how they are moved, corruptions, a residual network's numbers and what it
// remembers of its batches, and 8-bit products that recognize what floats do.
#include "apps/classify/classify.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "apps/classify/corrupt.h"
#include "apps/classify/ranged.h"
#include "base/error.h"
#include "base/file/file.h"
#include "base/structured/json.h"
#include "tests/model/tiny.h"
#include "tests/run/engine/portable/bare_program.h"

namespace lumen::classify {

using model::engine;
using model::test_library;

namespace {

apps::NetworkSettings classifier_settings(const std::string& family, int64_t size) {
  apps::NetworkSettings s;
  s.family = family;
  s.size = "xs";
  s.config = {{"size", double(size)}, {"channels", 1}, {"classes", 4}};
  s.optimizer.name = "adamw";
  s.optimizer.weight_decay = 0;
  return s;
}

std::unique_ptr<apps::Network> trained_classifier(const std::string& family, const apps::Images& images,
                                                  int64_t steps) {
  auto out = std::make_unique<apps::Network>(engine(), *test_library(), classifier_settings(family, images.height));
  for (int64_t step = 0; step < steps; ++step)
    (void)out->step("loss", classify_batch(images, *out, step, 32, false), 2e-3);
  return out;
}

TEST(Classify, ResidualNetworkOf20LayersHasThePublishedNumbers) {
  apps::NetworkSettings s;
  s.family = "resnet";
  const apps::Network network(engine(), *test_library(), s);
  EXPECT_EQ(network.trained_numbers(), 269'722);
  // Kaiming: the deviation of the second stage's first weights is that of 9 x 16 inputs.
  const std::vector<float> w = network.read("layers.3.one");
  double square = 0;
  for (const float x : w) square += double(x) * x / double(w.size());
  EXPECT_NEAR(std::sqrt(square), std::sqrt(2.0 / (9 * 16)), 0.005);
}

TEST(Classify, WhatANetworkRemembersIsSavedAndGoneOnWith) {
  const apps::Images images = apps::made_up_images(64, 12, 3);
  apps::Network whole(engine(), *test_library(), classifier_settings("resnet", 12));
  const model::TestFolder folder;
  EXPECT_EQ(whole.read("first_mean"), std::vector<float>(8, 0));
  EXPECT_EQ(whole.read("first_variance"), std::vector<float>(8, 1));
  for (int64_t step = 0; step < 4; ++step) {
    if (step == 2) whole.save(folder.path());
    (void)whole.step("loss", classify_batch(images, whole, step, 16, false), 1e-3);
  }
  EXPECT_NE(whole.read("first_mean"), std::vector<float>(8, 0));
  const auto again = apps::Network::load(engine(), *test_library(), folder.path());
  EXPECT_NE(again->read("first_mean"), whole.read("first_mean"));
  for (int64_t step = 2; step < 4; ++step)
    (void)again->step("loss", classify_batch(images, *again, step, 16, false), 1e-3);
  for (const model::arch::Parameter& p : whole.parameters())
    EXPECT_EQ(again->read(p.name), whole.read(p.name)) << p.name;
  const apps::NetworkInputs some = classify_batch(images, whole, 9, 16, false);
  const auto before = whole.read("layers.1.two_variance");
  const std::vector<float> logits = whole.run("logits", some);
  EXPECT_EQ(whole.run("logits", some), logits);
  EXPECT_EQ(whole.read("layers.1.two_variance"), before) << "logits change nothing";
}

TEST(Classify, ImagesAreMovedByTheSeedAndTheStep) {
  const apps::Images images = apps::made_up_images(8, 16, 1);
  const apps::Network network(engine(), *test_library(), classifier_settings("small_images", 16));
  const apps::NetworkInputs plain = classify_batch(images, network, 3, 8, false),
                            moved = classify_batch(images, network, 3, 8, true);
  EXPECT_NE(plain.numbers.at("images"), moved.numbers.at("images"));
  EXPECT_EQ(moved.numbers.at("images"), classify_batch(images, network, 3, 8, true).numbers.at("images"));
  EXPECT_EQ(plain.integers.at("shown"), moved.integers.at("shown"));
  EXPECT_EQ(stepped_rate(1, 0, 100), 1);
  EXPECT_EQ(stepped_rate(1, 50, 100), 0.1);
  EXPECT_EQ(stepped_rate(1, 75, 100), 0.01);
  EXPECT_EQ(classes_of(std::vector<float>{1, 3, 3, 0, -1, -2}, 2), (std::vector<int32_t>{1, 0}));
}

TEST(Classify, CorruptionsChangeImagesAndFollowTheSeed) {
  const apps::Images images = apps::made_up_images(8, 28, 1);
  for (int k = 0; k < kCorruptions; ++k) {
    apps::Images bad = images, again = images;
    for (int64_t i = 0; i < 8; ++i) {
      corrupt(bad, i, Corruption(k), 4, 7);
      corrupt(again, i, Corruption(k), 4, 7);
    }
    EXPECT_NE(bad.pixels, images.pixels) << corruption_name(Corruption(k));
    EXPECT_EQ(bad.pixels, again.pixels) << corruption_name(Corruption(k));
    EXPECT_EQ(bad.labels, images.labels);
  }
  EXPECT_NE(corrupted(images, 1).pixels, corrupted(images, 2).pixels);
  EXPECT_EQ(corrupted(images, 1).pixels, corrupted(images, 1).pixels);
}

double agreement(apps::Network& network, RangedNetwork& ranged, const apps::Images& images, const RangeWay& way) {
  int64_t same = 0, all = 0;
  for (int64_t first = 0; first + 16 <= images.count; first += 16, all += 16) {
    std::vector<int64_t> which;
    for (int64_t i = 0; i < 16; ++i) which.push_back(first + i);
    const apps::NetworkInputs inputs = images_of(images, network, which);
    const auto a = classes_of(network.run("logits", inputs), 16),
               b = classes_of(ranged.run(inputs, way, true).numbers, 16);
    for (int i = 0; i < 16; ++i) same += a[i] == b[i];
  }
  return double(same) / double(all);
}

void check_agreement(const std::string& family, size_t products) {
  const apps::Images images = apps::made_up_images(256, 12, 3), others = apps::made_up_images(64, 12, 4);
  const auto network = trained_classifier(family, images, 60);
  RangedNetwork ranged(*network, "logits", {{"B", 16}});
  EXPECT_EQ(ranged.products().size(), products);
  std::vector<int64_t> first(16);
  for (int64_t i = 0; i < 16; ++i) first[i] = i;
  ranged.calibrate({images_of(images, *network, first)});
  const nlohmann::json kept = to_json(ranged.calibration());
  EXPECT_EQ(to_json(calibration_of(parse_json(kept.dump(), "test"), "test")), kept);
  for (const auto source : {graph::RangeSource::fixed, graph::RangeSource::dynamic, graph::RangeSource::estimate})
    for (const auto per : {graph::RangePer::tensor, graph::RangePer::channel}) {
      RangeWay way;
      way.source = source;
      way.per = per;
      EXPECT_GE(agreement(*network, ranged, others, way), 0.85) << family << " " << way.name();
    }
  RangeWay sparse;
  sparse.gamma = 4;
  EXPECT_GE(agreement(*network, ranged, others, sparse), 0.75) << family;
  sparse.whole_alpha = true;  // rounded, and never raised
  EXPECT_GE(agreement(*network, ranged, others, sparse), 0.7) << family;
  Calibration less = ranged.calibration();
  less.products.erase(less.products.begin());
  EXPECT_THROW(ranged.set_calibration(less), Error);
}

TEST(Classify, EightBitsRecognizeWhatFloatsDo) {
  check_agreement("small_images", 4);
}

TEST(Classify, EightBitsRecognizeWhatFloatsDoInResidualNetworks) {
  check_agreement("resnet", 8);
}

// A language model's linear layers by the same pass: behind norms the estimate says little (section 6), so those may
// take calibrated ranges.
TEST(Classify, LinearLayersOfALanguageModel) {
  apps::NetworkSettings s;
  s.family = "llama";
  s.config = {{"vocab", 11},   {"hidden", 32}, {"layers", 2},  {"heads", 4},
              {"kv_heads", 2}, {"ffn", 48},    {"context", 32}};
  s.optimizer.name = "adamw";
  apps::Network network(engine(), *test_library(), s);
  const auto text = [](int64_t seed) {
    apps::NetworkInputs out;
    out.symbols = {{"B", 1}, {"T", 24}};
    int32_t token = seed % 11;
    for (int64_t i = 0; i < 24; ++i) {
      out.integers["tokens"].push_back(token);
      token = (3 * token + 1 + (i % 4 == 3 ? seed % 3 : 0)) % 11;
      out.integers["targets"].push_back(token);
    }
    return out;
  };
  for (int64_t step = 0; step < 150; ++step) (void)network.step("loss", text(step), 3e-3);
  RangedNetwork ranged(network, "loss", text(0).symbols);
  EXPECT_EQ(ranged.products().size(), 15U);
  int64_t behind_norms = 0;
  for (const graph::RangedProduct& p : ranged.products()) behind_norms += p.follows_norm;
  EXPECT_EQ(behind_norms, 11);
  std::vector<apps::NetworkInputs> some;
  for (int64_t i = 0; i < 16; ++i) some.push_back(text(1000 + i));
  ranged.calibrate(some);
  const auto mean_loss = [&](const std::function<float(const apps::NetworkInputs&)>& loss) {
    double sum = 0;
    for (int64_t i = 0; i < 20; ++i) sum += loss(text(2000 + i)) / 20;
    return sum;
  };
  const double whole = mean_loss([&](const apps::NetworkInputs& in) { return network.run("loss", in)[0]; });
  std::string said = fmt::format("float {:.4f}", whole);
  for (const auto source : {graph::RangeSource::fixed, graph::RangeSource::dynamic, graph::RangeSource::estimate})
    for (const bool norms_fixed : {false, true}) {
      if (norms_fixed && source != graph::RangeSource::estimate) continue;
      RangeWay way;
      way.source = source;
      way.norms_fixed = norms_fixed;
      const double loss = mean_loss([&](const apps::NetworkInputs& in) { return ranged.run(in, way).numbers[0]; });
      said += fmt::format("; {}{} {:.4f}", way.name(), norms_fixed ? ", static behind norms" : "", loss);
      EXPECT_LT(loss, whole + 0.1) << way.name();
    }
  std::cout << said << "\n";
}

// Reads images until there are none, and writes what the program makes of them.
constexpr const char* kRunner =
    "int lumen_run(const void* const* inputs, void* const* results);\n"
    "static float image[144], logits[4];\n"
    "BEGIN {\n"
    "  const void* inputs[] = {image};\n"
    "  void* results[] = {logits};\n"
    "  while (take(image, sizeof image)) {\n"
    "    if (lumen_run(inputs, results)) leave(1);\n"
    "    give(logits, sizeof logits);\n"
    "  }\n"
    "  leave(0);\n"
    "  __builtin_unreachable();\n}\n";

// The object and the C, built by `build` in a folder and run by `emulator`: the bits that this processor has.
void check_exported(const std::string& machine, const char* head, const std::string& build,
                    const std::string& emulator) {
  const apps::Images images = apps::made_up_images(64, 12, 3);
  const auto network = trained_classifier("small_images", images, 20);
  RangedNetwork ranged(*network, "logits", {{"B", 1}});
  std::vector<apps::NetworkInputs> some;
  for (int64_t i = 0; i < 8; ++i) some.push_back(images_of(images, *network, std::span(&i, 1)));
  ranged.calibrate(some);
  const model::TestFolder folder;
  const std::string at = folder.path().string() + "/";
  const RangeWay way;
  const run::PortableProgram made = ranged.exported(way, machine);
  EXPECT_GT(made.launches, 10);
  EXPECT_GT(made.arena_bytes, 0);
  write_file_atomic(at + "kernels.o", made.object);
  write_file_atomic(at + "model.c", made.source);
  write_file_atomic(at + "main.c", std::string(head) + kRunner);
  std::string bytes;
  for (const apps::NetworkInputs& one : some) {
    const std::vector<float>& x = one.numbers.at("images");
    bytes.append(reinterpret_cast<const char*>(x.data()), x.size() * sizeof(float));
  }
  write_file_atomic(at + "images", bytes);
  ASSERT_EQ(std::system(("cd " + at + " && " + build).c_str()), 0) << build;
  ASSERT_EQ(std::system(("cd " + at + " && " + emulator + " ./program < images > logits").c_str()), 0);
  const std::string got = read_file(at + "logits");
  ASSERT_EQ(got.size(), some.size() * 16);
  for (size_t i = 0; i < some.size(); ++i) {
    std::vector<float> logits(4);
    std::memcpy(logits.data(), got.data() + i * 16, 16);
    EXPECT_EQ(logits, ranged.run(some[i], way).numbers) << i;
  }
}

TEST(Classify, AnotherProcessorHasTheSameBits) {
  if (!is_installed("aarch64-linux-gnu-gcc") || !is_installed("qemu-aarch64"))
    GTEST_SKIP() << "no AArch64 compiler or emulator here";
  check_exported("neon", kWithLibrary, "aarch64-linux-gnu-gcc -static -O1 -o program main.c model.c kernels.o",
                 "qemu-aarch64");
}

TEST(Classify, MicrocontrollersHaveTheSameBitsWithoutALibrary) {
  if (!is_installed("clang-22") || !is_installed("ld.lld-22") || !is_installed("qemu-arm"))
    GTEST_SKIP() << "no compiler for Arm or emulator here";
  for (const char* cpu : {"cortex-m4", "cortex-m7"}) {
    SCOPED_TRACE(cpu);
    const std::string compile = fmt::format(
        "clang-22 --target=thumbv7em-none-eabihf -mcpu={} -O1 -fomit-frame-pointer -ffreestanding -c ", cpu);
    check_exported(cpu, kWithoutLibrary,
                   compile + "main.c -o main.o && " + compile + "model.c -o model.o && " +
                       "ld.lld-22 -o program main.o model.o kernels.o",
                   "qemu-arm -cpu max");
  }
}

TEST(Classify, MoreImagesThanABatchAreCountedOnce) {
  const apps::Images images = apps::made_up_images(10, 12, 3);
  const apps::Network network(engine(), *test_library(), classifier_settings("small_images", 12));
  const double right = recognized(images, network, 0, 4, [&](const apps::NetworkInputs& inputs) {
    std::vector<float> logits(16);
    for (int i = 0; i < 4; ++i) logits[i * 4 + inputs.integers.at("shown")[i]] = 1;
    return logits;
  });
  EXPECT_EQ(right, 1);
}

}  // namespace
}  // namespace lumen::classify

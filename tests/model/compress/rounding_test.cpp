// needs: none. Weights rounded panel by panel have the bits of the codec of the whole, whatever they come from and
// however many threads work; a model that is made weight by weight is written as the one that is held.
#include "model/compress/rounding.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "base/error.h"
#include "base/file/file.h"
#include "model/arch/checkpoint/read.h"
#include "model/compress/quantize.h"
#include "model/compress/relative_error.h"
#include "number/codec/codec.h"
#include "tests/model/families/family_case.h"
#include "tests/run/kept_kernels.h"

namespace lumen::model::compress {
namespace {

constexpr int64_t kRows = 640, kColumns = 256;  // several panels

const FormatLibrary& formats() {
  return test_library()->formats();
}

run::Engine& threads(int count) {
  static run::Engine one(run::Engine::Options{.cache_folder = kept_kernels(), .threads = 1, .machine = nullptr}),
      three(run::Engine::Options{.cache_folder = kept_kernels(), .threads = 3, .machine = nullptr});
  return count == 1 ? one : three;
}

std::vector<float> sample_numbers() {
  std::mt19937_64 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> x(kRows * kColumns);
  for (float& v : x) v = normal(random) * 0.05F;
  x[7] = 1.5F;
  return x;
}

arch::Weight held_in(const std::string& format) {
  const std::vector<float> x = sample_numbers();
  const graph::Shape shape = {graph::Dim(kRows), graph::Dim(kColumns)};
  if (format == "f32") return arch::f32_weight(shape, x);
  arch::Weight w;
  w.type = {shape, {Scalar::f32, formats().get(format)}};
  w.bytes = encode(*w.type.element.format, x, kRows, kColumns);
  return w;
}

std::vector<float> values(const arch::Weight& w) {
  if (w.is_f32()) return {w.f32().begin(), w.f32().end()};
  return decode(*w.type.element.format, w.bytes, w.rows(), w.columns());
}

class Rounding : public testing::TestWithParam<const char*> {};

TEST_P(Rounding, BitsAreThoseOfTheWhole) {
  const FormatRef to = formats().get(GetParam());
  for (const std::string from : {"f32", "bf16", "q8_0", "fp8_tile"}) {
    const arch::Weight w = held_in(from);
    const std::vector<float> x = values(w);
    const std::vector<uint8_t> want = encode(*to, x, kRows, kColumns);
    for (const int count : {1, 3}) {
      PanelRounder rounder(threads(count));
      const PanelRounder::Result got = rounder.round(w, to, {}, "w");
      EXPECT_TRUE(got.weight.bytes == arch::Bytes(want)) << from << " " << count;
      EXPECT_NEAR(got.error, relative_error(decode(*to, want, kRows, kColumns), x), 1e-6) << from;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Compress, Rounding,
                         testing::Values("bf16", "q4_0", "q4_k", "q6_k", "int4_g128_asym", "int8_row", "fp8_row",
                                         "fp8_tile", "fp8_tensor", "nvfp4_divided", "mxfp4", "nf4"),
                         [](const auto& i) { return std::string(i.param); });

class Weighed : public testing::TestWithParam<const char*> {};

// One for all rows, and one for each of four stacked matrices.
TEST_P(Weighed, ImportanceIsThatOfItsMatrix) {
  const FormatRef to = formats().get(GetParam());
  ASSERT_TRUE(to->weighs());
  const arch::Weight w = held_in("f32");
  for (const int64_t matrices : {1, 4}) {
    std::vector<std::vector<float>> importance;
    for (int64_t m = 0; m < matrices; ++m) {
      importance.emplace_back(kColumns);
      for (int64_t c = 0; c < kColumns; ++c) importance.back()[c] = 0.1F + static_cast<float>((c * (m + 3)) % 17);
    }
    PanelRounder rounder(threads(3));
    const PanelRounder::Result got = rounder.round(w, to, importance, "w");
    const int64_t rows = kRows / matrices;
    for (int64_t m = 0; m < matrices; ++m) {
      const std::vector<float> part(w.f32().begin() + m * rows * kColumns, w.f32().begin() + (m + 1) * rows * kColumns);
      const auto want = encode_weighted(*to, part, rows, kColumns, importance[m]);
      EXPECT_EQ(std::memcmp(want.data(), got.weight.bytes.data() + m * want.size(), want.size()), 0)
          << "matrix " << m << " of " << matrices;
    }
    EXPECT_GT(got.weighted, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Compress, Weighed, testing::Values("q4_0", "q4_k", "q6_k"),
                         [](const auto& i) { return std::string(i.param); });

TEST(Rounding, WhatIsNoNumberIsNamedWithItsPlace) {
  std::vector<float> x = sample_numbers();
  x[500 * kColumns + 3] = std::numeric_limits<float>::quiet_NaN();
  x[600 * kColumns + 9] = std::numeric_limits<float>::infinity();
  PanelRounder rounder(threads(3));
  try {
    (void)rounder.round(arch::f32_weight({graph::Dim(kRows), graph::Dim(kColumns)}, x), formats().get("q4_0"), {},
                        "blk.w");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::numeric);
    const std::string text = e.what();
    EXPECT_NE(text.find("'blk.w'"), std::string::npos) << text;
    EXPECT_NE(text.find("row 500, column 3"), std::string::npos) << text;  // the first, whoever was faster
  }
}

// Every family's folder and file, with what they join, turn and pack.
TEST(Streamed, AsTheModelThatIsHeld) {
  int made = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFamilies)) {
    if (!entry.is_directory() || !std::filesystem::exists(entry.path() / "config.json")) continue;
    const arch::Model held = read_model(test_library(), entry.path());
    const arch::StreamedModel streamed = stream_model(test_library(), entry.path());
    ASSERT_EQ(held.parameters.size(), streamed.model.parameters.size());
    for (const arch::Parameter& p : held.parameters) {
      const arch::Weight &want = held.weights.at(p.name), &now = streamed.model.weights.at(p.name);
      ASSERT_EQ(want.type, now.type) << entry.path() << " " << p.name;
      made += now.bytes.size() == 0;
      ASSERT_TRUE(fetched(streamed.model, p, streamed.source).bytes == want.bytes) << entry.path() << " " << p.name;
    }
  }
  EXPECT_GT(made, 100);
}

TEST(Streamed, FilesAreTheSame) {
  const TestFolder folder;
  const arch::Model held = read_model(test_library(), kFamilies / "llama");
  const arch::StreamedModel streamed = stream_model(test_library(), kFamilies / "llama");
  write_model(held, {folder / "a.gguf"});
  write_model(streamed.model, {folder / "b.gguf"}, streamed.source);
  EXPECT_EQ(read_file(folder / "a.gguf"), read_file(folder / "b.gguf"));
  write_model(held, {folder / "a", "hf"});
  write_model(streamed.model, {folder / "b", "hf"}, streamed.source);
  EXPECT_EQ(read_file(folder / "a" / "model.safetensors"), read_file(folder / "b" / "model.safetensors"));
  QuantizeOptions o;
  o.target = "q8_0";
  o.fallbacks = {"f16"};
  Quantizer first(held, o), second(streamed.model, o, streamed.source);
  first.write(engine(), {folder / "c.gguf"});
  second.write(engine(), {folder / "d.gguf"});
  EXPECT_EQ(read_file(folder / "c.gguf"), read_file(folder / "d.gguf"));
  EXPECT_EQ(first.report().text(), second.report().text());
}

}  // namespace
}  // namespace lumen::model::compress

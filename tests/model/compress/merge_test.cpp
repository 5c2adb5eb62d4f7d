// needs: none. Adapters folded into models: the numbers of the well-known implementation, formats of the result, and
// what is refused.
#include "model/compress/merge.h"

#include "base/error.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/rows.h"
#include "model/infer/measure/perplexity_divergence.h"
#include "number/codec/codec.h"
#include "tests/model/families/family_case.h"

namespace lumen::model::compress {
namespace {

namespace fs = std::filesystem;

struct Case {
  explicit Case(const std::string& name)
      : folder(kFixtures / "adapters" / name),
        file(folder / "expected.safetensors", test_library()->formats()),
        model(read_hf(test_library(), kFixtures / "families" / file.metadata().at("base"))),
        adapters{{read_adapter(model, folder)}},
        tokens(numbers<int32_t>(file.get("tokens"))),
        logits(numbers<float>(file.get("logits"))) {}
  fs::path folder;
  file::SafetensorsFile file;
  arch::Model model;
  std::vector<arch::ScaledAdapter> adapters;
  std::vector<int32_t> tokens;
  std::vector<float> logits;
};

std::vector<float> logits_of(const arch::Model& m, std::span<const arch::ScaledAdapter> adapters, const Case& c) {
  const infer::LoadedModel loaded(engine(), m, adapters);
  std::vector<float> all;
  const size_t length = c.tokens.size() / 2;
  for (size_t r = 0; r < 2; ++r) {
    infer::Session s(loaded, {.context = 16, .chunk = 8, .exact = true});
    const auto got = s.feed_all(std::span<const text::TokenId>(c.tokens).subspan(r * length, length));
    all.insert(all.end(), got.begin(), got.end());
  }
  return all;
}

double off(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  const auto [low, high] = std::minmax_element(b.begin(), b.end());
  double most = 0;
  for (size_t i = 0; i < b.size(); ++i) most = std::max(most, std::abs(static_cast<double>(a[i]) - b[i]));
  return std::isfinite(most) ? most / (static_cast<double>(*high) - *low) : INFINITY;
}

class Merged : public testing::TestWithParam<std::string> {};

// Magnitudes, embeddings, whole weights: whatever runs beside the model can be folded in.
TEST_P(Merged, GivesTheReferencesLogits) {
  const Case c(GetParam());
  const TestFolder folder;
  MergeOptions options;
  options.type = "f32";
  Merge(engine(), c.model, c.adapters, options).write(folder / "m.gguf");
  const arch::Model merged = read_model(test_library(), folder / "m.gguf");
  for (const auto& [name, w] : merged.weights) EXPECT_TRUE(w.is_f32()) << name;
  EXPECT_LT(off(logits_of(merged, {}, c), c.logits), 1e-4);
  options.hugging_face = true;
  Merge(engine(), c.model, c.adapters, options).write(folder / "m");
  EXPECT_LT(off(logits_of(read_model(test_library(), folder / "m"), {}, c), c.logits), 1e-4);
}

std::vector<std::string> cases() {
  return names_in(kFixtures / "adapters");
}
INSTANTIATE_TEST_SUITE_P(All, Merged, testing::ValuesIn(cases()), [](const auto& i) { return i.param; });

arch::Model rounded(const arch::Model& model, const std::string& name) {
  const FormatRef format = test_library()->formats().get(name);
  arch::Model out = model;
  for (auto& [parameter, w] : out.weights) {
    if (w.type.shape.size() != 2 || w.columns() % format->block != 0) continue;
    const arch::Weight floats = decoded(w);
    w.bytes = encode(*format, floats.f32(), w.rows(), w.columns());
    w.type.element = {Scalar::f32, format};
  }
  return out;
}

// Each weight in its own format: the rounded sum, by the exact codec, and what no adapter changes byte for byte as it
// was.
TEST(Merge, KeepsEachFormat) {
  const Case c("every_product");
  const arch::Model base = rounded(c.model, "q8_0");
  std::vector<arch::ScaledAdapter> some = c.adapters;
  std::erase_if(some[0].adapter.parts, [](const auto& p) { return !p.first.ends_with(".wq"); });
  const TestFolder folder;
  const MergeReport report = Merge(engine(), base, some, {}).write(folder / "m.gguf");
  EXPECT_EQ(report.tensors.size(), 2U);
  for (const MergedTensor& t : report.tensors) {
    EXPECT_TRUE(t.changed);
    EXPECT_EQ(t.from, t.to);
    EXPECT_GT(t.change, 0.01);
    EXPECT_GT(t.error, 0);
    EXPECT_LT(t.error, 0.02);
  }
  const arch::Model merged = read_model(test_library(), folder / "m.gguf");
  for (const auto& [name, w] : merged.weights) {
    const arch::Weight& old = base.weights.at(name);
    ASSERT_EQ(w.type, old.type) << name;
    if (!name.ends_with(".wq")) {
      EXPECT_EQ(w.bytes, old.bytes) << name;
      continue;
    }
    const std::vector<float> sum = adapted_values(engine(), *base.find(name), old, some);
    EXPECT_EQ(std::vector<uint8_t>(w.bytes.begin(), w.bytes.end()),
              encode(*w.type.element.format, sum, w.rows(), w.columns()))
        << name;
    // The sum itself, in double precision.
    const arch::AdapterPart& part = some[0].adapter.parts.at(name);
    const arch::Weight floats = decoded(old);
    for (int64_t r = 0; r < w.rows(); ++r)
      for (int64_t k = 0; k < w.columns(); ++k) {
        double want = floats.f32()[static_cast<size_t>(r * w.columns() + k)];
        for (int64_t i = 0; i < part.rank(); ++i)
          want += part.scale * part.b.f32()[static_cast<size_t>(r * part.rank() + i)] *
                  part.a.f32()[static_cast<size_t>(i * w.columns() + k)];
        EXPECT_NEAR(sum[static_cast<size_t>(r * w.columns() + k)], want, 1e-5);
      }
  }
}

TEST(Merge, ToAnotherFormatAndSeveralAdapters) {
  const Case c("every_product");
  std::vector<arch::ScaledAdapter> two = {{c.adapters[0].adapter, 0.75}, {c.adapters[0].adapter, -0.5}};
  const TestFolder folder;
  MergeOptions options;
  options.type = "q8_0";
  options.fallbacks = {"f16"};
  Merge(engine(), c.model, two, options).write(folder / "m.gguf");
  const arch::Model merged = read_model(test_library(), folder / "m.gguf");
  EXPECT_EQ(merged.weights.at("layers.0.wq").type.element.format->name, "q8_0");
  EXPECT_LT(off(logits_of(merged, {}, c), logits_of(c.model, two, c)), 0.05);
  options.type = "bf16";
  Merge(engine(), c.model, two, options).write(folder / "n.gguf");
  EXPECT_LT(off(logits_of(read_model(test_library(), folder / "n.gguf"), {}, c), logits_of(c.model, two, c)), 0.02);
}

std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Merge, RefusesWhatCannotBe) {
  const Case c("every_product"), whole("copies"), magnitudes("magnitudes");
  const arch::Model base = rounded(c.model, "q8_0");
  MergeOptions folder;
  folder.hugging_face = true;
  EXPECT_NE(refusal([&] { Merge(engine(), base, c.adapters, folder); }).find("no place in a Hugging Face folder"),
            std::string::npos);
  for (const Case* one : {&whole, &magnitudes}) {
    const std::vector<arch::ScaledAdapter> half = {{one->adapters[0].adapter, 0.5}};
    EXPECT_NE(refusal([&] { Merge(engine(), one->model, half, {}); }).find("cannot be scaled"), std::string::npos);
  }
}

// Merged in f32 it is the same model; in a coarse format it is not.
TEST(Merge, DivergenceTellsHowFarItIs) {
  const Case c("every_product");
  const TestFolder folder;
  const std::vector<text::TokenId> text(c.tokens.begin(), c.tokens.end());
  infer::PerplexityOptions options;
  options.length = 13;
  options.exact = true;
  const auto far = [&](const std::string& type) {
    MergeOptions merge;
    merge.type = type;
    merge.fallbacks = {"f16"};
    Merge(engine(), c.model, c.adapters, merge).write(folder / "m.gguf");
    return divergence_between(engine(), c.model, c.adapters, read_model(test_library(), folder / "m.gguf"), text,
                              options, folder / "record")
        .mean;
  };
  EXPECT_LT(far("f32"), 1e-6);
  EXPECT_GT(far("q4_0"), 1e-4);
}

}  // namespace
}  // namespace lumen::model::compress

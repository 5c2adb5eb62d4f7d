// needs: cpu. A model run layer by layer: the losses of the whole, sums of what its weights read, and values on disk.
#include "model/calibrate/layer_run.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "model/arch/checkpoint/read.h"
#include "model/calibrate/calibrate.h"
#include "model/compress/quantize.h"
#include "tests/model/families/family_case.h"
#include "tests/model/tiny.h"
#include "tests/run/kept_kernels.h"

namespace lumen::model::calibrate {
namespace {

run::Engine& layer_engine() {
  static run::Engine e(run::Engine::Options{.cache_folder = kept_kernels(), .threads = 1, .machine = nullptr});
  return e;
}

std::vector<text::TokenId> tokens_of(const arch::Model& m, int64_t count) {
  std::vector<text::TokenId> out;
  const int64_t vocabulary = m.integer("vocab");
  for (int64_t i = 0; i < count; ++i) out.push_back((i * i * 7 + i * 3 + 5) % vocabulary);
  return out;
}

LayerRun::WeightOf weights_of(const arch::Model& m) {
  return [&m](const std::string& name) { return m.weights.at(name).f32(); };
}

struct Walk {
  std::vector<PartRun> parts;
  std::vector<float> losses;
};
Walk walk(LayerRun& run, const arch::Model& m, const std::filesystem::path& folder, const graph::TapKinds& kinds = {}) {
  CarriedValues values(folder, "rounded");
  Walk out;
  for (size_t k = 0; k < run.parts(); ++k) {
    out.parts.push_back(run.run(k, weights_of(m), &values, &values, kinds));
    run.keep_written(k, &values);
    run.drop_read(k, &values);
  }
  const auto losses = out.parts.back().results.find(arch::kResult);  // families that predict no tokens have none
  if (losses != out.parts.back().results.end()) out.losses = losses->second;
  return out;
}

std::vector<float> whole_losses(const arch::Model& m, const std::vector<text::TokenId>& text, int64_t length) {
  const infer::LoadedModel loaded(layer_engine(), m);
  run::CompileOptions options;
  options.assignments = stored_formats(m);
  const int64_t windows = std::ssize(text) / length;
  options.symbols = {{"B", windows}, {"T", length}};
  options.exact = true;
  const auto program = layer_engine().compile(loaded.function("token_loss"), options);
  const graph::Type ids{{windows, length}, {Scalar::i32, nullptr}};
  std::vector<int32_t> tokens(text.begin(), text.begin() + windows * length), targets(tokens.size());
  for (int64_t i = 0; i < windows * length; ++i) targets[i] = (i + 1) % length == 0 ? 0 : tokens[i + 1];
  for (const std::string& name : program->input_names()) {
    if (name != "tokens" && name != "targets") {
      program->bind(name, loaded.weights().at(name));
      continue;
    }
    const auto t = std::make_shared<run::DeviceTensor>(layer_engine().device(), ids);
    t->upload(name == "tokens" ? tokens.data() : targets.data(), t->bytes());
    program->bind(name, t);
  }
  program->run();
  std::vector<float> out(windows * length);
  program->result(arch::kResult)->download(out.data(), out.size() * sizeof(float));
  return out;
}

TEST(LayerRun, LossesOfTheWholeModelOfEveryFamily) {
  for (const std::string& family : test_library()->family_names()) {
    const arch::FamilyRef f = test_library()->family(family);
    const std::vector<std::string> sizes = f->sizes();
    if (!f->has_function("token_loss") || std::ranges::find(sizes, "tiny") == sizes.end()) continue;
    SCOPED_TRACE(family);
    const arch::Model m = initialise(f, f->config("tiny", {}), 3);
    const int64_t length = 8;
    const std::vector<text::TokenId> text = tokens_of(m, 5 * length);
    LayerRun run(layer_engine(), m, text, {.length = length, .batch = 2});
    EXPECT_EQ(run.parts(), static_cast<size_t>(m.integer("layers")) + 1);
    const std::vector<float> got = walk(run, m, {}).losses, want = whole_losses(m, text, length);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-5) << i;
  }
}

// The sums of every weight, layer by layer, against those of the whole model.
void expect_sums_of_importance(const arch::Model& m) {
  const std::vector<text::TokenId> text = tokens_of(m, 6 * 8);
  LayerRun run(layer_engine(), m, text, {.length = 8, .batch = 4});  // 4 and 2
  graph::TapKinds kinds;
  kinds.squares = kinds.gram = true;
  const TestFolder folder;
  const Walk in_files = walk(run, m, folder.path(), kinds), in_memory = walk(run, m, {}, kinds);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "what nobody reads any more goes";
  const infer::LoadedModel loaded(layer_engine(), m);
  CalibrateOptions o;
  o.length = 8;
  o.exact = true;
  const Importance want = calibrate(loaded, text, o);
  size_t seen = 0;
  for (size_t k = 0; k < in_files.parts.size(); ++k)
    for (size_t t = 0; t < in_files.parts[k].taps.size(); ++t) {
      const TapSums& sums = in_files.parts[k].taps[t];
      EXPECT_EQ(sums.gram, in_memory.parts[k].taps[t].gram);
      for (const std::string& name : sums.tap.weights) {
        const auto entry = want.entries.find(m.find(name)->gguf);
        if (entry == want.entries.end()) continue;
        ++seen;
        for (int64_t c = 0; c < sums.tap.columns; ++c) {
          EXPECT_NEAR(sums.squares[c], entry->second.sums[c], 1e-4 * entry->second.sums[c]) << name;
          EXPECT_NEAR(sums.gram[c * sums.tap.columns + c], entry->second.sums[c], 1e-4 * entry->second.sums[c]);
        }
      }
    }
  EXPECT_EQ(seen, want.entries.size());
}

TEST(LayerRun, SumsAreThoseOfAnImportanceMatrix) {
  expect_sums_of_importance(tiny_model());
}

// It ends with its last layer, and tells no losses.
TEST(LayerRun, SumsOfAnEncoder) {
  const arch::Model m = read_hf(test_library(), kFixtures / "encoders" / "plain");
  LayerRun run(layer_engine(), m, tokens_of(m, 2 * 8), {.length = 8, .batch = 2});
  EXPECT_EQ(run.parts(), static_cast<size_t>(m.integer("layers")));
  EXPECT_TRUE(walk(run, m, {}).losses.empty());
  expect_sums_of_importance(m);
}

TEST(LayerRun, TwoFormsOfAText) {
  const arch::Model m = tiny_model(), rough = tiny_model(2);
  const std::vector<text::TokenId> text = tokens_of(m, 3 * 8);
  LayerRun run(layer_engine(), m, text, {.length = 8, .batch = 2});
  CarriedValues truth({}, "true"), rounded({}, "rounded");
  run.run(0, weights_of(m), nullptr, &truth);
  run.run(0, weights_of(rough), nullptr, &rounded);
  graph::TapKinds kinds;
  kinds.gram = kinds.cross = true;
  const PartRun both = run.compare(1, weights_of(m), &rounded, &truth, kinds);
  const PartRun same = run.compare(1, weights_of(m), &rounded, &rounded, kinds);
  ASSERT_EQ(both.taps.size(), same.taps.size());
  for (size_t t = 0; t < both.taps.size(); ++t) {
    EXPECT_EQ(both.taps[t].gram, same.taps[t].gram);
    EXPECT_EQ(same.taps[t].cross, std::vector<float>(same.taps[t].cross.size(), 0));
    EXPECT_NE(both.taps[t].cross, same.taps[t].cross);
  }
}

// What the loss gains by numbers that go from part to part, against losses with those numbers changed.
TEST(LayerRun, GainsBackThroughTheParts) {
  for (const char* family : {"llama", "mixtral"}) {
    const arch::FamilyRef f = test_library()->family(family);
    std::map<std::string, double> sizes{{"vocab", 11}, {"hidden", 32},  {"layers", 3},  {"heads", 2},
                                        {"ffn", 48},   {"kv_heads", 2}, {"context", 16}};
    if (std::string(family) == "mixtral") sizes["experts"] = 4;
    const arch::Model m = initialise(f, f->config("", {sizes.begin(), sizes.end()}), 3);
    const int64_t length = 8, windows = 3;
    LayerRun run(layer_engine(), m, tokens_of(m, windows * length), {.length = length, .batch = 2});
    CarriedValues values({}, "values"), slopes({}, "slopes");
    for (size_t k = 0; k < run.parts(); ++k)
      run.run(k, weights_of(m), &values, k + 1 < run.parts() ? &values : nullptr);
    std::vector<PartRun> back(run.parts());
    graph::TapKinds kinds;
    kinds.gram = true;
    for (size_t k = run.parts(); k-- > 0;) back[k] = run.back(k, weights_of(m), &values, &slopes, kinds);
    const auto loss_from = [&](size_t first, int number, int64_t at, float by) {
      CarriedValues changed({}, "changed");
      for (size_t k = 0; k < first; ++k) run.run(k, weights_of(m), &changed, &changed);
      float x = 0;
      const std::span<uint8_t> bytes(reinterpret_cast<uint8_t*>(&x), sizeof x);
      changed.read(number, at * 4, bytes);
      x += by;
      changed.write(number, at * 4, bytes);
      double sum = 0;
      for (size_t k = first; k < run.parts(); ++k) {
        const bool last = k + 1 == run.parts();
        const PartRun part = run.run(k, weights_of(m), &changed, last ? nullptr : &changed);
        if (last)
          for (int64_t i = 0; i < windows * length; ++i)
            if (i % length != length - 1) sum += part.results.at(arch::kResult)[i];
      }
      return sum;
    };
    for (const size_t part : {size_t{1}, size_t{3}}) {
      const int number = run.part(part).in.at(0);
      for (const int64_t at : {int64_t{5}, int64_t{32 * 9 + 3}, int64_t{32 * 20 + 30}}) {
        float got = 0;
        slopes.read(number, at * 4, {reinterpret_cast<uint8_t*>(&got), sizeof got});
        const double want = (loss_from(part, number, at, 2e-3F) - loss_from(part, number, at, -2e-3F)) / 4e-3;
        EXPECT_NEAR(got, want, 2e-2 * std::abs(want) + 5e-3) << family << " part " << part << " at " << at;
      }
    }
    size_t weights = 0;
    for (const PartRun& part : back) {
      weights += part.slopes.size();
      EXPECT_TRUE(part.results.empty());
      for (const TapSums& sums : part.taps)
        for (const std::string& name : sums.tap.weights) EXPECT_TRUE(part.slopes.contains(name)) << name;
    }
    size_t matrices = 0;
    for (const arch::Parameter& p : m.parameters) matrices += p.shape.size() >= 2;
    EXPECT_EQ(weights, matrices) << family;
  }
}

TEST(LayerRun, TextsThatAreNone) {
  const arch::Model m = tiny_model();
  EXPECT_THROW(LayerRun(layer_engine(), m, tokens_of(m, 7), {.length = 8}), Error);
  std::vector<text::TokenId> wrong = tokens_of(m, 8);
  wrong[3] = 11;
  EXPECT_THROW(LayerRun(layer_engine(), m, wrong, {.length = 8}), Error);
}

}  // namespace
}  // namespace lumen::model::calibrate

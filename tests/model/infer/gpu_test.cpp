// Needs: cpu. Training, generation and quantizing on a stand-in GPU that executes this processor's code, whose memory
// nobody here can read: the bits are the processor's, and a run moves between the two at a checkpoint.
#include <gtest/gtest.h>

#include "base/error.h"
#include "model/compress/quantize.h"
#include "model/infer/measure/perplexity.h"
#include "model/infer/session/session.h"
#include "model/train/trainer/trainer.h"
#include "tests/model/tiny.h"
#include "tests/run/stand_in.h"

namespace lumen::model::infer {
namespace {

run::Engine make_engine(const std::string& device) {
  run::Engine::Options options;
  options.cache_folder = (std::filesystem::temp_directory_path() / "lumen-test-cache").string();
  options.threads = 2;
  options.device = device;
  options.machine = machine::native_machine();
  return run::Engine(options);
}

struct Setting {
  arch::Model model;
  std::shared_ptr<data::Dataset> data;
  recipe::Recipe recipe;

  Setting() {
    std::string text;
    for (int i = 0; i < 200; ++i) text += i % 3 == 0 ? "the cat sat on the mat. " : "a dog ran to the cat. ";
    const text::Tokenizer tokenizer = text::Tokenizer::characters(text);
    data = std::make_shared<data::Dataset>(data::Dataset::from_text(text, tokenizer));
    const arch::FamilyRef family = test_library()->family("llama");
    model = initialise(family, family->config("tiny", {{"vocab", static_cast<double>(tokenizer.size())}}), 3);
    model.tokenizer = tokenizer;
    recipe.batch = 2;
    recipe.length = 12;
    recipe.seed = 3;
    recipe.schedule = {.shape = recipe::Schedule::Shape::cosine, .peak = 1e-2, .floor = 1e-3, .warmup = 2, .steps = 8};
    recipe.keep = 0;
  }
};

std::map<std::string, std::vector<uint8_t>> weights_of(const train::Trainer& t) {
  std::map<std::string, std::vector<uint8_t>> out;
  for (const auto& [name, w] : t.model().weights) out[name] = {w.bytes.begin(), w.bytes.end()};
  return out;
}

class ModelOnGpu : public testing::TestWithParam<run::GpuVendor> {
 protected:
  ModelOnGpu() : fake(GetParam()) { fake.run_machine_code(); }
  run::StandIn fake;
};

TEST_P(ModelOnGpu, TrainingMovesBetweenDevicesAtACheckpoint) {
  for (const bool rounds : {false, true}) {
    Setting r;
    if (rounds) {
      recipe::QuantizeRule rule;
      rule.values = {"*"};
      rule.format = "q8_0";
      r.recipe.quantize = {rule};
      r.recipe.accumulate = 2;
    }
    run::Engine here = make_engine("cpu"), there = make_engine(fake.device());
    train::Trainer whole(here, r.model, r.recipe, r.data);
    for (int i = 0; i < 6; ++i) whole.step();

    const TestFolder folder;
    const auto part = [&](run::Engine& engine, const std::filesystem::path& from, int steps) {
      train::Trainer trainer(engine, r.model, r.recipe, r.data);
      if (!from.empty()) trainer.restore(from);
      for (int i = 0; i < steps; ++i) trainer.step();
      EXPECT_EQ(trainer.done() == 6, weights_of(trainer) == weights_of(whole));
      if (trainer.done() == 6) {
        EXPECT_EQ(trainer.evaluate(4), whole.evaluate(4));
        trainer.finish();
        EXPECT_EQ(trainer.rounded().weights.begin()->second.bytes.size(),
                  whole.rounded().weights.begin()->second.bytes.size());
      }
      return trainer.save(folder / "run");
    };
    const auto first = part(here, {}, 2);
    const auto second = part(there, first, 3);
    part(here, second, 1);
    part(there, second, 1);
  }
  EXPECT_GT(fake->count(run::symbol_of(GetParam(), "graph_launch")), 0) << "steps were not replayed";
}

TEST_P(ModelOnGpu, SessionsGiveTheSameLogits) {
  const std::vector<text::TokenId> text = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5};
  run::Engine here = make_engine("cpu"), there = make_engine(fake.device());
  const FormatRef cache = test_library()->formats().get("f16");
  compress::QuantizeOptions to_q8;
  to_q8.target = "q8_0";
  Setting r;
  const arch::Model plain = tiny_model();
  const arch::Model held = quantize(here, r.model, to_q8, nullptr, {});
  const arch::Model held_there = quantize(there, r.model, to_q8, nullptr, {});
  for (const auto& [name, w] : held.weights)
    EXPECT_TRUE(std::equal(w.bytes.begin(), w.bytes.end(), held_there.weights.at(name).bytes.begin())) << name;

  for (const arch::Model* m : {&plain, &held}) {
    const LoadedModel loaded_here(here, *m), loaded_there(there, *m);
    SessionOptions options{.context = 32, .chunk = 8};
    if (m == &held) options.keys = options.values = cache;
    Session a(loaded_here, options), b(loaded_there, options);
    for (int round = 0; round < 2; ++round) {
      for (size_t at = 0; at < text.size(); at += at == 0 ? 7 : 1) {
        const auto piece = std::span(text).subspan(at, at == 0 ? 7 : 1);
        const auto x = a.feed(piece), y = b.feed(piece);
        ASSERT_TRUE(std::equal(x.begin(), x.end(), y.begin(), y.end())) << "at " << at;
      }
      a.rewind(0);
      b.rewind(0);
    }
    std::vector<text::TokenId> long_text;
    for (int i = 0; i < 64; ++i) long_text.push_back(text[static_cast<size_t>(i) % text.size()]);
    PerplexityOptions windows;
    windows.length = 8;
    windows.batch = 2;
    EXPECT_EQ(perplexity(loaded_here, long_text, windows, {}).value,
              perplexity(loaded_there, long_text, windows, {}).value);
  }
}

TEST_P(ModelOnGpu, WeightsThatDoNotFitAreRefusedBeforeAnyIsCopied) {
  fake->bytes = 4096;
  run::Engine there = make_engine(fake.device());
  const Setting r;
  const int64_t blocks = fake->device_blocks;
  try {
    const LoadedModel loaded(there, r.model);
    FAIL() << "a model was loaded into 4096 bytes";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::hardware);
    EXPECT_NE(std::string(e.what()).find("copies of weights"), std::string::npos) << e.what();
  }
  EXPECT_EQ(fake->device_blocks, blocks);
}

INSTANTIATE_TEST_SUITE_P(Vendors, ModelOnGpu, testing::Values(run::GpuVendor::cuda, run::GpuVendor::hip),
                         [](const auto& instance) { return std::string(run::vendor_name(instance.param)); });

}  // namespace
}  // namespace lumen::model::infer

// needs: none. Runs with every optimizer: what is resumed ends in the same bits, states in 8 bits learn what floats
// learn, and the mean of the weights is one.
#include <cmath>

#include "base/error.h"
#include "model/arch/checkpoint/read.h"
#include "model/train/loop/loop.h"
#include "model/train/loop/outputs.h"
#include "tests/model/train/adapter/lora_case.h"

namespace lumen::model::recipe {
namespace {

struct SmallCase : train::AdapterCase {
  explicit SmallCase(double hidden = 32)
      : train::AdapterCase("llama", {{"hidden", hidden}, {"layers", 1}, {"heads", 2}, {"kv_heads", 1}, {"ffn", 64}}) {}
};

struct Kind {
  const char* name;
  const char* recipe;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> kAll = {
      {"adamw", ""},
      {"lion", "[optimizer]\nname = \"lion\"\n"},
      {"sgd", "[optimizer]\nname = \"sgd\"\n"},
      {"nesterov", "[optimizer]\nname = \"sgd\"\n[optimizer.config]\nnesterov = true\n"},
      {"muon", "[optimizer]\nname = \"muon\"\n"},
      {"adafactor", "[optimizer]\nname = \"adafactor\"\n"},
      {"eight_bits", "[optimizer]\nmoments = \"mxfp8_e4m3\"\n"},
      {"two_formats", "[optimizer]\nmoments = \"q8_0\"\nsecond_moments = \"bf16\"\n"},
      {"mean", "[optimizer]\nema_decay = 0.75\n"},
      {"short_parameters", "[optimizer]\nname = \"lion\"\nema_decay = 0.5\n[run]\nparam_type = \"bf16\"\n"},
      {"groups", "[[group]]\nrole = \"embedding\"\nrate = 0.5\n[[group]]\nvalue = \"layers.0.wq\"\nfrozen = true\n"},
  };
  return kAll;
}

Recipe recipe_of(const Kind& kind) {
  Recipe base = train::small_recipe();
  base.batch = 2;
  base.length = 8;
  base.schedule.warmup = 2;
  base.schedule.peak = 3e-3;
  return parse_recipe(kind.recipe, kind.name, base);
}

class OptimizerResume : public testing::TestWithParam<size_t> {};

TEST_P(OptimizerResume, EndsInTheSameBits) {
  const Kind& kind = kinds()[GetParam()];
  run::Engine engine = train::make_engine(2), one = train::make_engine(1);
  const SmallCase s;
  const Recipe recipe = recipe_of(kind);
  const TestFolder folder;
  // The state at the end is compared as a whole: weights, states of the optimizer, the mean.
  const auto state = [&](train::Trainer& t, const char* place) {
    const file::Checkpoint c = file::load_checkpoint(t.save(folder / place), test_library()->formats());
    std::map<std::string, std::vector<uint8_t>> out;
    for (const auto& file : {c.weights, c.optimizer})
      for (const file::StoredTensor& tensor : file->tensors()) out[tensor.name] = tensor.blob();
    return out;
  };
  train::Trainer straight(engine, s.model, recipe, s.data);
  for (int i = 0; i < 5; ++i) (void)straight.step();
  const auto want = state(straight, "straight");
  train::Trainer first(engine, s.model, recipe, s.data);
  for (int i = 0; i < 2; ++i) (void)first.step();
  const auto saved = first.save(folder / "first");
  // On another number of threads, beside other weights and another state: all must come from the checkpoint.
  SmallCase other;
  other.model = initialise(s.model.family, s.model.config, 77);
  train::Trainer second(one, other.model, recipe, s.data);
  (void)second.step();
  second.restore(saved);
  for (int i = 0; i < 3; ++i) (void)second.step();
  const auto got = state(second, "second");
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, bytes] : want) EXPECT_TRUE(got.at(name) == bytes) << kind.name << ": " << name;
}

INSTANTIATE_TEST_SUITE_P(Kinds, OptimizerResume, testing::Range<size_t>(0, kinds().size()),
                         [](const auto& test) { return std::string(kinds()[test.param].name); });

TEST(OptimizerRuns, MomentsInEightBitsLearnTheSame) {
  run::Engine engine = train::make_engine(2);
  const SmallCase s;
  std::vector<double> losses;
  for (const char* moments : {"f32", "mxfp8_e4m3", "q8_0"}) {
    Recipe r = recipe_of(kinds()[0]);
    r.schedule.steps = 200;
    r.optimizer.moments = moments;
    train::Trainer t(engine, s.model, r, s.data);
    const double before = t.evaluate(16);
    for (int i = 0; i < 200; ++i) (void)t.step();
    losses.push_back(t.evaluate(64));
    EXPECT_LT(losses.back(), 0.5 * before) << moments;
  }
  EXPECT_NEAR(losses[1], losses[0], 0.03 * losses[0]);
  EXPECT_NEAR(losses[2], losses[0], 0.03 * losses[0]);
}

TEST(OptimizerRuns, TheMeanFollowsTheWeights) {
  run::Engine engine = train::make_engine(2);
  const SmallCase s;
  Recipe r = recipe_of({"mean", "[optimizer]\nema_decay = 0.75\n"});
  r.schedule.steps = 4;
  r.evaluate_every = 2;
  r.metric = "ema.validation_loss";
  r.load_best = true;
  const TestFolder folder;
  train::Trainer t(engine, s.model, r, s.data);
  std::vector<double> mean;
  const auto weight = [](const arch::Model& m) { return m.weights.at("layers.0.wq").f32(); };
  for (const float x : weight(s.model)) mean.push_back(x);
  for (int i = 0; i < 3; ++i) {
    (void)t.step();
    const arch::Model now = t.model();
    for (size_t k = 0; k < mean.size(); ++k) mean[k] = 0.75 * mean[k] + 0.25 * weight(now)[k];
  }
  const double plain = t.evaluate(4), averaged = t.evaluate_average(4);
  EXPECT_NE(plain, averaged);
  EXPECT_EQ(t.evaluate(4), plain) << "what was exchanged is in its place again";
  t.exchange_average();
  const arch::Model average = t.model();
  t.exchange_average();
  for (size_t k = 0; k < mean.size(); ++k) ASSERT_NEAR(weight(average)[k], mean[k], 1e-6) << k;
  // It can say which checkpoint is the best, and is a file of its own.
  train::LoopOptions options;
  options.out = folder.path();
  const train::LoopResult result = run_training(t, options);
  EXPECT_GE(result.best_step, 0);
  t.finish();
  t.exchange_average();
  const arch::Model last = t.model();
  t.exchange_average();
  (void)write_outputs(engine, t, folder.path());
  const arch::Model written = read_model(test_library(), folder / "model-ema.gguf");
  for (const auto& [name, w] : last.weights) EXPECT_TRUE(written.weights.at(name).bytes == w.bytes) << name;
}

// Moments as the first checkpoints called them.
TEST(OptimizerRuns, OldNamesOfMomentsAreRead) {
  run::Engine engine = train::make_engine(2);
  const SmallCase s;
  const Recipe recipe = recipe_of(kinds()[0]);
  const TestFolder folder;
  train::Trainer straight(engine, s.model, recipe, s.data);
  for (int i = 0; i < 2; ++i) (void)straight.step();
  const file::Checkpoint now = file::load_checkpoint(straight.save(folder / "now"), test_library()->formats());
  file::CheckpointContent content;
  content.state = now.state;
  content.files = now.files;
  std::map<std::string, std::vector<uint8_t>> blobs;
  const auto put = [&](std::vector<file::TensorSpec>& specs, const file::StoredTensor& t, const std::string& name) {
    file::TensorSpec spec;
    spec.name = name;
    spec.shape = t.shape;
    spec.element = t.element;
    specs.push_back(spec);
    blobs[name] = t.blob();
  };
  for (const file::StoredTensor& t : now.weights->tensors()) put(content.weights, t, t.name);
  for (const file::StoredTensor& t : now.optimizer->tensors()) {
    ASSERT_TRUE(t.name.starts_with("optimizer.")) << t.name;
    put(content.optimizer, t, "adam." + t.name.substr(std::string("optimizer.").size()));
  }
  content.fetch = [&](const file::TensorSpec& spec) -> std::span<const uint8_t> { return blobs.at(spec.name); };
  const auto old = save_checkpoint(folder / "old", content);
  (void)straight.step();
  train::Trainer resumed(engine, s.model, recipe, s.data);
  resumed.restore(old);
  (void)resumed.step();
  EXPECT_TRUE(weights_of(resumed) == weights_of(straight));
  // A state that is nowhere is told by name.
  Recipe lion = recipe_of(kinds()[6]);
  train::Trainer other(engine, s.model, lion, s.data);
  try {
    other.restore(old);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("optimizer."), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace lumen::model::recipe

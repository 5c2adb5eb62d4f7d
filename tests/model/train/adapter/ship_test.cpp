// needs: none. Adapters trained inside the rounding: the written file is what was trained, in every format, mixtures
// and groups with magnitudes among them; and what cannot be.
#include "model/train/method/ship.h"

#include <cmath>

#include "base/error.h"
#include "model/arch/checkpoint/read.h"
#include "model/infer/session/session.h"
#include "model/train/loop/loop.h"
#include "model/train/loop/outputs.h"
#include "tests/model/train/adapter/lora_case.h"

namespace lumen::model::train {
namespace {

namespace fs = std::filesystem;

recipe::Recipe ship_recipe(const std::string& type) {
  recipe::Recipe r = adapter_recipe();
  r.ship.type = type;
  r.schedule.steps = 6;
  return r;
}

// Logits of the trainer and of the file it has written, over a validation window, both in the run's precision.
double far(run::Engine& engine, Trainer& trainer, const fs::path& file) {
  const data::Batch rows = trainer.batches().validation(0, 1);
  const std::vector<text::TokenId> window(rows.tokens.begin(), rows.tokens.end());
  const arch::Model written = read_model(test_library(), file);
  const auto vocab = static_cast<size_t>(written.integer("vocab"));
  std::vector<float> trained(window.size() * vocab);
  trainer.logits(window, trained);
  const infer::LoadedModel loaded(engine, written);
  run::CompileOptions options;
  options.assignments = stored_formats(written);
  options.symbols = {{"B", 1}, {"T", static_cast<int64_t>(window.size())}};
  options.exact = true;
  options.products = product_type(trainer.recipe(), test_library()->formats());
  const auto program = engine.compile(loaded.function("forward"), options);
  const auto tokens = std::make_shared<run::DeviceTensor>(
      engine.device(), graph::Type{{1, static_cast<int64_t>(window.size())}, {Scalar::i32, nullptr}});
  tokens->upload(window.data(), tokens->bytes());
  for (const std::string& name : program->input_names())
    program->bind(name, name == "tokens" ? tokens : loaded.weights().at(name));
  program->run();
  std::vector<float> got(trained.size());
  program->result(arch::kResult)->download(got.data(), static_cast<int64_t>(got.size() * sizeof(float)));
  double most = 0;
  for (size_t i = 0; i < got.size(); ++i) most = std::max(most, std::abs(static_cast<double>(got[i]) - trained[i]));
  return most;
}

class Shipped : public testing::TestWithParam<const char*> {};

TEST_P(Shipped, TheFileIsWhatWasTrained) {
  run::Engine engine = make_engine(2);
  const WideCase s;
  recipe::Recipe recipe = ship_recipe(GetParam());
  Trainer trainer(engine, s.model, recipe, s.data);
  const double before = trainer.evaluate(4);
  for (int i = 0; i < 6; ++i) (void)trainer.step();
  EXPECT_LT(trainer.evaluate(4), before);
  const TestFolder folder;
  const auto lines = write_outputs(engine, trainer, folder.path());
  EXPECT_LT(far(engine, trainer, folder / "model.gguf"), 1e-4);
  // The adapter is there, too, and changes the weights that were trained.
  EXPECT_TRUE(fs::exists(folder / "adapter" / "adapter_config.json"));
  EXPECT_TRUE(fs::exists(folder / "adapter.gguf"));
}
INSTANTIATE_TEST_SUITE_P(All, Shipped, testing::Values("q4_0", "q4_k", "q3_k_m", "iq4_nl", "int3_g128", "bf16"),
                         [](const auto& i) { return std::string(i.param); });

// Short operands of products change what data meets, not the weights: B A is made in f32, as it is for the file.
TEST(Ship, ShortProductsTrainTheFilesWeights) {
  run::Engine engine = make_engine(2);
  const WideCase s;
  recipe::Recipe recipe = ship_recipe("q4_0");
  recipe.precision = "bf16";
  recipe.adapter.targets = {"all-linear", "embed", "output"};
  Trainer trainer(engine, s.model, recipe, s.data);
  for (int i = 0; i < 6; ++i) (void)trainer.step();
  const TestFolder folder;
  (void)write_outputs(engine, trainer, folder.path());
  EXPECT_LT(far(engine, trainer, folder / "model.gguf"), 1e-4);
}

// Beside packed weights: every weight in the format it has.
TEST(Ship, BaseKeepsItsFormats) {
  run::Engine engine = make_engine(2);
  const WideCase s;
  const arch::Model packed = packed_model(engine, s.model, "q4_0");
  Trainer trainer(engine, packed, ship_recipe("base"), s.data);
  for (int i = 0; i < 3; ++i) (void)trainer.step();
  const TestFolder folder;
  (void)write_outputs(engine, trainer, folder.path());
  const arch::Model written = read_model(test_library(), folder / "model.gguf");
  for (const auto& [name, w] : packed.weights) EXPECT_EQ(written.weights.at(name).type, w.type) << name;
  EXPECT_EQ(written.weights.at("embed").bytes, packed.weights.at("embed").bytes);
  EXPECT_NE(written.weights.at("layers.0.wq").bytes, packed.weights.at("layers.0.wq").bytes);
  EXPECT_LT(far(engine, trainer, folder / "model.gguf"), 1e-4);
}

// Scales learned, and a magnitude for each group (DL-QAT): still the bytes that were trained; few numbers are.
TEST(Ship, LearnedFieldsAndGroupMagnitudes) {
  run::Engine engine = make_engine(2);
  const WideCase s;
  for (const char* format : {"int3_g128", "int3_g128_affine"}) {
    recipe::Recipe recipe = ship_recipe(format);
    recipe.ship.fields = "learned";
    recipe.ship.magnitudes = true;
    Trainer trainer(engine, s.model, recipe, s.data);
    const double before = trainer.evaluate(4);
    for (int i = 0; i < 6; ++i) (void)trainer.step();
    EXPECT_LT(trainer.evaluate(4), before) << format;
    const TestFolder folder;
    (void)write_outputs(engine, trainer, folder.path());
    EXPECT_LT(far(engine, trainer, folder / "model.gguf"), 1e-3) << format;
    EXPECT_FALSE(fs::exists(folder / "adapter")) << "fields and magnitudes have no place there";
  }
}

// Phases: what `trains` leaves out stays as it is.
TEST(Ship, PhasesHoldTheRestStill) {
  run::Engine engine = make_engine(2);
  const WideCase s;
  recipe::Recipe recipe = ship_recipe("int3_g128");
  recipe.ship.fields = "learned";
  recipe.ship.magnitudes = true;
  recipe.ship.trains = {"fields"};
  Trainer trainer(engine, s.model, recipe, s.data);
  const auto adapter = bytes_of(trainer.adapter());
  const arch::Weight first = trainer.shipped(*s.model.find("layers.0.wq"));
  for (int i = 0; i < 3; ++i) (void)trainer.step();
  EXPECT_EQ(bytes_of(trainer.adapter()), adapter);
  EXPECT_NE(trainer.shipped(*s.model.find("layers.0.wq")).bytes, first.bytes);
}

// Before the first step nothing is changed: what is shipped is the rounded model.
TEST(Ship, BeginsAtTheRoundedModel) {
  run::Engine engine = make_engine(2);
  const WideCase s;
  const arch::Model packed = packed_model(engine, s.model, "q4_0");
  const Trainer ships(engine, s.model, ship_recipe("q4_0"), s.data);
  for (const char* name : {"layers.0.wq", "layers.0.down"})
    EXPECT_EQ(ships.shipped(*s.model.find(name)).bytes, packed.weights.at(name).bytes) << name;
}

TEST(Ship, ResumesBitForBit) {
  run::Engine engine = make_engine(2);
  const WideCase s;
  recipe::Recipe recipe = ship_recipe("int3_g128");
  recipe.ship.fields = "learned";
  recipe.ship.magnitudes = true;
  Trainer whole(engine, s.model, recipe, s.data), first(engine, s.model, recipe, s.data),
      second(engine, s.model, recipe, s.data);
  const TestFolder folder;
  for (int i = 0; i < 4; ++i) (void)whole.step();
  for (int i = 0; i < 2; ++i) (void)first.step();
  second.restore(first.save(folder.path()));
  for (int i = 0; i < 2; ++i) (void)second.step();
  for (const char* name : {"layers.0.wq", "layers.0.down"})
    EXPECT_EQ(second.shipped(*s.model.find(name)).bytes, whole.shipped(*s.model.find(name)).bytes) << name;
}

std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Ship, RefusesWhatCannotBeInsideARounding) {
  run::Engine engine = make_engine(1);
  const WideCase s;
  const auto refused = [&](const std::function<void(recipe::Recipe&)>& change, const std::string& words) {
    recipe::Recipe recipe = ship_recipe("q4_0");
    change(recipe);
    const std::string message = refusal([&] { Trainer(engine, s.model, recipe, s.data); });
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  refused([](recipe::Recipe& r) { r.adapter.dropout = 0.1; }, "a dropout");
  refused([](recipe::Recipe& r) { r.adapter.method = "dora"; }, "DoRA");
  refused([](recipe::Recipe& r) { r.ship.type = "q9_9"; }, "q9_9");
  refused([](recipe::Recipe& r) { r.ship.fields = "guessed"; }, "ship.fields");
  refused([](recipe::Recipe& r) { r.ship.trains = {"all"}; }, "ship.trains");
  refused([](recipe::Recipe& r) { r.adapter.method = "none"; }, "none is trained");
}

}  // namespace
}  // namespace lumen::model::train

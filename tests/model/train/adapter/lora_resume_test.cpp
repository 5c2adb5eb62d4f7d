// needs: none. Checkpoints of adapters: they hold the adapter alone, and go on bit for bit beside the model they name.
#include <fstream>

#include "base/error.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "model/recipe/record/record.h"
#include "tests/model/train/adapter/lora_case.h"

namespace lumen::model::train {
namespace {

class LoraResume : public testing::TestWithParam<std::tuple<const char*, const char*, int64_t>> {};

TEST_P(LoraResume, IsBitExactFromTheCheckpointAlone) {
  const auto [method, param_type, accumulate] = GetParam();
  run::Engine engine = make_engine(2);
  const WideCase s;
  const TestFolder folder;
  write_gguf(packed_model(engine, s.model, "q4_0"), folder / "base.gguf");
  const arch::Model base = read_model(test_library(), folder / "base.gguf");
  recipe::Recipe recipe = adapter_recipe();
  recipe.adapter.method = method;
  recipe.adapter.dropout = 0.1;
  recipe.param_type = param_type;
  recipe.base = (folder / "base.gguf").string();
  recipe.accumulate = accumulate;
  Trainer straight(engine, base, recipe, s.data);
  for (int i = 0; i < 5; ++i) (void)straight.step();
  Trainer first(engine, base, recipe, s.data);
  for (int i = 0; i < 2; ++i) (void)first.step();
  const auto saved = first.save(folder / "out");
  // Nothing of the base's size is in it.
  EXPECT_LT(std::filesystem::file_size(saved / "model.safetensors"), std::filesystem::file_size(folder / "base.gguf"));
  const file::Checkpoint checkpoint = file::load_checkpoint(saved, test_library()->formats());
  const recipe::StoredRun stored = recipe::read_run(test_library(), checkpoint);
  EXPECT_EQ(stored.recipe.adapter.method, method);
  EXPECT_EQ(weights_hash(stored.model), first.base());
  Trainer second(engine, stored.model, stored.recipe, s.data);
  second.restore(checkpoint);
  EXPECT_EQ(second.done(), 2);
  EXPECT_EQ(second.evaluate(2), first.evaluate(2));
  for (int i = 0; i < 3; ++i) (void)second.step();
  EXPECT_EQ(bytes_of(second.adapter()), bytes_of(straight.adapter()));
}

INSTANTIATE_TEST_SUITE_P(Kinds, LoraResume,
                         testing::Values(std::tuple("lora", "f32", 1), std::tuple("dora", "f32", 2),
                                         std::tuple("dora", "bf16", 1)));

TEST(LoraBase, IsFoundAndVerified) {
  run::Engine engine = make_engine(2);
  const WideCase s;
  const TestFolder folder;
  write_gguf(packed_model(engine, s.model, "q4_0"), folder / "base.gguf");
  recipe::Recipe recipe = adapter_recipe();
  recipe.base = (folder / "base.gguf").string();
  Trainer trainer(engine, read_model(test_library(), folder / "base.gguf"), recipe, s.data);
  (void)trainer.step();
  const file::Checkpoint checkpoint = file::load_checkpoint(trainer.save(folder / "out"), test_library()->formats());
  // Elsewhere, by the user's word.
  std::filesystem::rename(folder / "base.gguf", folder / "moved.gguf");
  EXPECT_THROW(recipe::read_run(test_library(), checkpoint), Error);
  const recipe::StoredRun run = recipe::read_run(test_library(), checkpoint, (folder / "moved.gguf").string());
  EXPECT_EQ(weights_hash(run.model), trainer.base());
  // Another model.
  write_gguf(packed_model(engine, s.model, "q4_1"), folder / "base.gguf");
  try {
    (void)recipe::read_run(test_library(), checkpoint);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::verify);
    EXPECT_NE(std::string(e.hint()).find("--model"), std::string::npos);
  }
}

TEST(LoraBase, AModelBesideAWholeCheckpointIsRefused) {
  run::Engine engine = make_engine(2);
  const WideCase s;
  const TestFolder folder;
  recipe::Recipe recipe = small_recipe();
  recipe.length = 8;
  Trainer trainer(engine, s.model, recipe, s.data);
  (void)trainer.step();
  const file::Checkpoint checkpoint = file::load_checkpoint(trainer.save(folder / "out"), test_library()->formats());
  EXPECT_NO_THROW(recipe::read_run(test_library(), checkpoint));
  EXPECT_THROW(recipe::read_run(test_library(), checkpoint, "some.gguf"), Error);
}

}  // namespace
}  // namespace lumen::model::train

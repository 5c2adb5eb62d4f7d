// needs: none. What outputs record of where they come from, and what is found when one of it has changed.
#include "model/recipe/record/provenance.h"

#include <algorithm>

#include "base/error.h"
#include "base/file/file.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "model/recipe/record/lora_base.h"
#include "model/train/loop/outputs.h"
#include "run/engine/stages.h"
#include "tests/model/train/adapter/lora_case.h"

namespace lumen::model::recipe {
namespace {

namespace fs = std::filesystem;
using Found = VerifyLine::Found;

Provenance some(const fs::path& folder) {
  const train::AdapterCase s("llama", {{"hidden", 16}, {"layers", 1}, {"heads", 2}, {"kv_heads", 2}, {"ffn", 16}});
  write_gguf(s.model, folder / "base.gguf");
  write_file_atomic(folder / "data.txt", "a text");
  Provenance p;
  p.base = (folder / "base.gguf").string();
  p.base_hash = weights_hash(read_model(test_library(), p.base)).hex();
  p.files = {{(folder / "data.txt").string(), 6, hash_text("a text")}, {"", 3, hash_text("own")}};
  p.tokens = hash_text("tokens").hex();
  p.recipe = "doc = \"a recipe\"\n";
  p.formats = {{"q4_0", test_library()->formats().get("q4_0")->hash.hex()}};
  p.compiler = run::compiler_version();
  return p;
}

std::string found(const std::vector<VerifyLine>& lines, Found kind) {
  std::string out;
  for (const VerifyLine& line : lines)
    if (line.found == kind) out += line.what + ";";
  return out;
}

TEST(Provenance, IsReadAsItWasWritten) {
  const TestFolder folder;
  const Provenance p = some(folder.path());
  const auto record = record_of(p);
  const auto again = provenance_of(record, "here");
  ASSERT_TRUE(again);
  EXPECT_EQ(record_of(*again), record);
  EXPECT_EQ(again->files.size(), 2U);
  EXPECT_FALSE(provenance_of({}, "here"));
  auto broken = record;
  broken["lumen.run.files"] = "[1]";
  EXPECT_THROW(provenance_of(broken, "here"), Error);
  broken["lumen.run.files"] = "{}";
  EXPECT_THROW(provenance_of(broken, "here"), Error);
  broken["lumen.run.files"] = R"([{"path": "a", "bytes": -1, "hash": "00000000000000000000000000000000"}])";
  EXPECT_THROW(provenance_of(broken, "here"), Error);
}

TEST(Provenance, TellsWhatHasChanged) {
  const TestFolder folder;
  const Provenance p = some(folder.path());
  fs::create_directories(folder / "run" / "adapter");
  write_file_atomic(folder / "run" / "model.gguf", "a model");
  write_file_atomic(folder / "run" / "adapter" / "weights", "an adapter");
  write_run_file(folder / "run", p, {"model.gguf", "adapter", "absent.gguf"});
  const auto check = [&] { return verify(test_library(), folder / "run"); };
  EXPECT_EQ(found(check(), Found::differs) + found(check(), Found::missing), "");
  EXPECT_EQ(check().size(), 7U);  // base, file, recipe, format, compiler, two outputs

  write_file_atomic(folder / "run" / "adapter" / "weights", "another one");
  EXPECT_NE(found(check(), Found::differs).find("weights'"), std::string::npos);
  write_file_atomic(folder / "run" / "adapter" / "weights", "an adapter");

  write_file_atomic(folder / "data.txt", "A text");
  EXPECT_NE(found(check(), Found::differs).find("data.txt'"), std::string::npos);
  fs::remove(folder / "data.txt");
  EXPECT_NE(found(check(), Found::missing).find("data.txt'"), std::string::npos);
  write_file_atomic(folder / "data.txt", "a text");

  arch::Model other = read_model(test_library(), folder / "base.gguf");
  arch::Weight& w = other.weights.at("norm");
  w = arch::f32_weight(w.type.shape, std::vector<float>(w.f32().size(), 2.0F));
  write_gguf(other, folder / "base.gguf");
  EXPECT_NE(found(check(), Found::differs).find("base.gguf'"), std::string::npos);
  EXPECT_EQ(found(check(), Found::missing), "");

  Provenance taught = p;
  taught.teacher = p.base;
  taught.teacher_hash = p.base_hash;
  write_run_file(folder / "run", taught, {});
  EXPECT_NE(found(check(), Found::differs).find("teacher '" + p.base + "'"), std::string::npos);
  taught.teacher_hash = weights_hash(read_model(test_library(), p.base)).hex();
  write_run_file(folder / "run", taught, {});
  EXPECT_EQ(found(check(), Found::differs).find("teacher"), std::string::npos);
  EXPECT_EQ(record_of(*provenance_of(record_of(taught), "here")).at("lumen.run.teacher"), "base.gguf");

  Provenance old = p;
  old.compiler = "an older one";
  old.formats["q4_0"] = hash_text("another text").hex();
  old.formats["nobody_knows"] = hash_text("another text").hex();
  write_run_file(folder / "run", old, {});
  EXPECT_NE(found(check(), Found::differs).find("format 'q4_0';compiler;"), std::string::npos)
      << found(check(), Found::differs);
  EXPECT_EQ(found(check(), Found::missing), "format 'nobody_knows';");
}

TEST(Provenance, NothingRecordedIsAnError) {
  const TestFolder folder;
  (void)some(folder.path());
  EXPECT_THROW(verify(test_library(), folder / "base.gguf"), Error);
  EXPECT_THROW(verify(test_library(), folder.path()), Error);
  EXPECT_THROW(verify(test_library(), folder / "nothing"), Error);
}

// What training writes can be checked: an adapter in both kinds of files, and the run.
TEST(Provenance, OutputsOfTraining) {
  run::Engine engine = train::make_engine(2);
  const train::AdapterCase s("llama", {{"hidden", 32}, {"layers", 1}, {"heads", 2}, {"kv_heads", 2}, {"ffn", 32}});
  const TestFolder folder;
  write_gguf(s.model, folder / "base.gguf");
  Recipe recipe = train::adapter_recipe();
  recipe.base = (folder / "base.gguf").string();
  recipe.merge = "base";
  train::Trainer trainer(engine, read_model(test_library(), recipe.base), recipe, s.data);
  (void)trainer.step();
  (void)write_outputs(engine, trainer, folder / "run");
  for (const char* name : {"", "model.gguf", "adapter.gguf", "adapter"}) {
    const auto lines = verify(test_library(), folder / "run" / name);
    EXPECT_EQ(found(lines, Found::differs) + found(lines, Found::missing), "") << name;
    EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [](const auto& l) { return l.what.starts_with("base"); }));
  }
}

// All weights trained: what they were before is recorded as well, in every file, over an interruption, and in the place
// of what the model's own file says of itself.
TEST(Provenance, OutputsOfAWholeModel) {
  run::Engine engine = train::make_engine(2);
  const train::AdapterCase s("llama", {{"hidden", 32}, {"layers", 1}, {"heads", 2}, {"kv_heads", 2}, {"ffn", 32}});
  const TestFolder folder;
  arch::Model base = s.model;
  Provenance own;
  own.compiler = "of another time";
  set_record(base.metadata, record_of(own));
  write_gguf(base, folder / "base.gguf");
  Recipe recipe = train::small_recipe();
  recipe.batch = 2;
  recipe.length = 8;
  recipe.optimizer.ema_decay = 0.5;
  QuantizeRule rule;
  rule.values = {"*"};
  rule.format = "q8_0";
  recipe.quantize = {rule};
  const arch::Model begun = read_model(test_library(), folder / "base.gguf");
  train::Trainer first(engine, begun, recipe, s.data);
  first.set_origin({(folder / "base.gguf").string(), weights_hash(begun).hex()});
  (void)first.step();
  train::Trainer trainer(engine, begun, recipe, s.data);
  trainer.restore(first.save(folder / "first"));
  EXPECT_EQ(trainer.origin().hash, weights_hash(begun).hex());
  std::filesystem::create_directory(folder / "run");
  (void)write_outputs(engine, trainer, folder / "run");
  for (const char* name : {"", "model.gguf", "model-rounded.gguf", "model-ema.gguf"}) {
    const auto lines = verify(test_library(), folder / "run" / name);
    EXPECT_EQ(found(lines, Found::differs) + found(lines, Found::missing), "") << name;
    EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [](const auto& l) { return l.what.starts_with("base"); }));
  }
}

}  // namespace
}  // namespace lumen::model::recipe

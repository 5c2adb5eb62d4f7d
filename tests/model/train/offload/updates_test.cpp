// needs: none. Runs whose states of the optimizer lie in a file, or beside a GPU in the host's memory, give the very
// bytes of runs that hold them: weights, and checkpoints, also when they go on from one.
#include <gtest/gtest.h>

#include "base/file/file.h"
#include "base/file/temporary.h"
#include "model/train/offload/offload.h"
#include "model/train/trainer/forecast.h"
#include "tests/model/train/offload/offload_case.h"
#include "tests/run/stand_in.h"

namespace lumen::model::train {
namespace {

namespace fs = std::filesystem;

struct Case {
  const char* name;
  std::function<void(recipe::Recipe&)> change;
};
const Case kCases[] = {
    {"adamw", [](recipe::Recipe&) {}},
    {"accumulated", [](recipe::Recipe& r) { r.accumulate = 3; }},
    {"bf16",
     [](recipe::Recipe& r) {
       r.param_type = "bf16";
       r.optimizer.moments = "mxfp8_e4m3";
       r.optimizer.ema_decay = 0.9;
     }},
    {"bf16 accumulated",
     [](recipe::Recipe& r) {
       r.param_type = "bf16";
       r.optimizer.moments = "mxfp8_e4m3";
       r.accumulate = 2;
     }},
    {"muon", [](recipe::Recipe& r) { r.optimizer.name = "muon"; }},
    {"adafactor", [](recipe::Recipe& r) { r.optimizer.name = "adafactor"; }},
    {"adapter",
     [](recipe::Recipe& r) {
       r.adapter.method = "lora";
       r.adapter.rank = 4;
     }},
};

// What a run of six steps leaves, begun again from its checkpoint after the third by a trainer of its own.
std::map<std::string, std::string> files_of(run::Engine& engine, recipe::Recipe recipe, const std::string& offload,
                                            const std::string& folder) {
  recipe.offload = offload;
  const fs::path out = fresh_folder(folder);
  recipe.run_folder = out.string();
  fs::path saved;
  {
    Trainer first(engine, small_model(), recipe, small_data());
    for (int i = 0; i < 3; ++i) (void)first.step();
    (void)first.evaluate(2);
    saved = first.save(out);
  }
  Trainer second(engine, small_model(), recipe, small_data());
  (void)second.step();
  second.restore(saved);
  for (int i = 0; i < 3; ++i) (void)second.step();
  const fs::path last = second.save(out);
  std::map<std::string, std::string> files;
  for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
    files[std::string("3 ") + name] = read_file(saved / name);
    files[std::string("6 ") + name] = read_file(last / name);
  }
  return files;
}

TEST(OffloadedUpdates, GiveTheSameBytesFromAFile) {
  run::Engine engine = make_engine(2);
  for (const Case& c : kCases) {
    recipe::Recipe recipe = small_recipe();
    c.change(recipe);
    const auto expected = files_of(engine, recipe, "", "held"), got = files_of(engine, recipe, "moments", "file");
    for (const auto& [name, bytes] : expected) EXPECT_TRUE(bytes == got.at(name)) << c.name << ": " << name;
  }
}

TEST(OffloadedUpdates, GiveTheSameBytesBesideAGpu) {
  run::StandIn fake(run::GpuVendor::cuda);
  fake.run_machine_code();
  run::Engine here = make_engine(1);
  run::Engine there(run::Engine::Options{.cache_folder = (fs::temp_directory_path() / "lumen-test-cache").string(),
                                         .threads = 1,
                                         .machine = machine::native_machine(),
                                         .device = fake.device(),
                                         .tries = false});
  for (const size_t i : {0, 3}) {
    recipe::Recipe recipe = small_recipe();
    kCases[i].change(recipe);
    const auto expected = files_of(here, recipe, "", "held");
    for (const char* place : {"moments", "moments=host"}) {
      const auto got = files_of(there, recipe, place, "gpu");
      for (const auto& [name, bytes] : expected) EXPECT_TRUE(bytes == got.at(name)) << place << " " << name;
    }
  }
}

// The host's memory is a processor's own: nothing is begun, and the run is the one without.
TEST(OffloadedUpdates, StayOnProcessorsWhenTheHostIsNamed) {
  run::Engine engine = make_engine(2);
  const auto expected = files_of(engine, small_recipe(), "", "held");
  for (const char* offload : {"moments=host", "layers=host"})
    EXPECT_EQ(files_of(engine, small_recipe(), offload, "stay"), expected) << offload;
}

// Layers that are alike share a program; every state is somewhere once.
TEST(OffloadedUpdates, ShareProgramsBetweenLayers) {
  const arch::Model model = small_model();
  recipe::Recipe recipe = small_recipe();
  recipe.offload = "moments";
  const Method method(model, recipe, {});
  run::Engine engine = make_engine(1);
  const OffloadForecast f = forecast_offload(engine.device(), model, method, recipe);
  const auto groups = update_groups(method.trained(), method.optimizer());
  EXPECT_GE(groups.size(), 5U);
  EXPECT_LE(f.updates.size(), groups.size() - 2);
  size_t members = 0;
  for (const UpdateGroup& g : groups) members += g.members.size();
  EXPECT_EQ(members, method.trained().size());
  EXPECT_EQ(f.states, method.optimizer().state_bytes(method.trained()));
  EXPECT_GE(f.outside, f.states);
}

TEST(OffloadedUpdates, TakeTheMemoryThatWasForecast) {
  const arch::FamilyRef family = test_library()->family("llama");
  const auto config = family->config("", {{"vocab", 512},
                                          {"hidden", 256},
                                          {"layers", 6},
                                          {"heads", 4},
                                          {"kv_heads", 2},
                                          {"head_dim", 64},
                                          {"ffn", 768},
                                          {"context", 32}});
  int64_t peaks[2] = {};
  for (const bool offloads : {false, true}) {
    recipe::Recipe recipe = small_recipe();
    recipe.batch = 1;
    recipe.offload = offloads ? "moments" : "";
    recipe.run_folder = fresh_folder("forecast").string();
    run::Engine engine = make_engine(2);
    const TrainingForecast f = forecast_training(engine, outline(family, config), recipe);
    Trainer trainer(engine, initialise(family, config, 1), recipe, small_data());
    for (int i = 0; i < 2; ++i) (void)trainer.step();
    (void)trainer.evaluate(2);
    const int64_t taken = peaks[offloads] = engine.device().memory().peak;
    EXPECT_GE(f.total(), taken * 97 / 100) << offloads;
    EXPECT_LE(f.total(), taken * 103 / 100) << offloads;
  }
  EXPECT_LT(peaks[1], peaks[0] * 3 / 4) << peaks[0];
}

}  // namespace
}  // namespace lumen::model::train

// needs: cpu. Ranks with a stand-in GPU each, whose streams do their work in any order that events allow: exchanges
// beside the computation give the bits of those that are waited for, launched or recorded.
#include <cstdlib>

#include "tests/model/train/ranks/ranked_run.h"
#include "tests/run/stand_in.h"

namespace lumen::model::train {
namespace {

class RankedOverlap : public testing::TestWithParam<run::GpuVendor> {
 protected:
  RankedOverlap() : fake(GetParam()) {
    fake->devices = 4;
    fake->bytes = int64_t{4} << 30;
    fake.run_machine_code();
    ::setenv(variable(), (std::string(LUMEN_BINARY_DIR) + "/tests/libfake_" + fake.device() + ".so").c_str(), 1);
  }
  ~RankedOverlap() override { ::unsetenv(variable()); }
  const char* variable() const {
    return GetParam() == run::GpuVendor::cuda ? "LUMEN_NCCL_LIBRARY" : "LUMEN_RCCL_LIBRARY";
  }
  int64_t calls(const char* name) { return fake->count(run::symbol_of(GetParam(), name)); }

  RankedRun on_gpus(int size, const recipe::Recipe& recipe, int steps, uint32_t order) {
    fake->order = order;
    fake->calls.clear();
    return among_ranks(size, [&](std::shared_ptr<run::Communicator> own) {
      run::Engine::Options options;
      options.cache_folder = (std::filesystem::temp_directory_path() / "lumen-test-cache").string();
      options.threads = 1;
      options.device = fmt::format("{}:{}", fake.device(), own->rank());
      options.machine = machine::native_machine();
      options.tries = false;
      std::unique_ptr<run::Engine> engine;
      for (int r = 0; r < size; ++r) {  // the stand-in opens one after the other
        if (r == own->rank()) engine = std::make_unique<run::Engine>(options);
        own->barrier();
      }
      own->use(engine->device(), options.device);
      RankedRun out = trained(*engine, recipe, steps, own);
      own->barrier();
      own = nullptr;
      return out;
    })[0];
  }

  run::StandIn fake;
};
INSTANTIATE_TEST_SUITE_P(, RankedOverlap, testing::Values(run::GpuVendor::cuda, run::GpuVendor::hip),
                         [](const auto& p) { return run::vendor_name(p.param); });

TEST_P(RankedOverlap, GivesTheSameBits) {
  for (const auto& [shard, orders] : {std::pair("states", 3), {"none", 2}, {"gradients", 1}, {"parameters", 2}}) {
    SCOPED_TRACE(shard);
    recipe::Recipe recipe = small_recipe();
    recipe.shard = shard;
    const RankedRun host = among_ranks(2, recipe, 4)[0];
    for (int order = 0; order < orders; ++order) {
      const RankedRun beside = on_gpus(2, recipe, 4, order);
      EXPECT_EQ(beside.weights, host.weights) << order;
      EXPECT_EQ(beside.losses, host.losses) << order;
      EXPECT_EQ(beside.validation, host.validation) << order;
      if (recipe.shard != "parameters") {
        EXPECT_GT(calls("graph_launch"), 0);
      }
    }
  }
  recipe::Recipe apart = small_recipe();
  apart.shard = "states";
  apart.overlap = false;
  EXPECT_EQ(on_gpus(2, apart, 3, 1).weights, among_ranks(2, apart, 3)[0].weights);
}

TEST_P(RankedOverlap, InFormatsAndInSeveralBatches) {
  recipe::Recipe recipe = small_recipe();
  recipe.accumulate = 2;
  for (const auto& [shard, format] : {std::pair("states", "f32"), {"gradients", "q8_0"}, {"parameters", "bf16"}}) {
    SCOPED_TRACE(shard);
    recipe.shard = shard;
    recipe.reduce_type = format;
    recipe.gather_type = format;
    EXPECT_EQ(on_gpus(2, recipe, 3, 3).weights, among_ranks(2, recipe, 3)[0].weights);
  }
}

// Steps that exchange in their midst are recorded whole.
TEST_P(RankedOverlap, RanksThatHoldOneModelRecordTheirSteps) {
  recipe::Recipe recipe = small_recipe();
  recipe.tensor_parallel = 2;
  const RankedRun host = among_ranks(2, recipe, 4)[0];
  for (const uint32_t order : {0, 1}) {
    const RankedRun gpus = on_gpus(2, recipe, 4, order);
    EXPECT_EQ(gpus.weights, host.weights);
    EXPECT_EQ(gpus.losses, host.losses);
    EXPECT_GT(calls("graph_launch"), 0);
  }
  recipe.shard = "states";
  recipe.sequence_parallel = true;
  EXPECT_EQ(on_gpus(4, recipe, 4, 1).weights, among_ranks(4, recipe, 4)[0].weights);
}

}  // namespace
}  // namespace lumen::model::train

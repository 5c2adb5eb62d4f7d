// Needs: cpu. Devices on trial: what is right passes, what computes wrongly or cannot be opened is refused with a
// reason.
#include "run/engine/self_test.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "number/library/library.h"
#include "tests/run/graphs.h"
#include "tests/run/stand_in.h"

namespace lumen::run {
namespace {

// Kernels are compiled once for all tests.
Engine::Options kept() {
  return options((std::filesystem::temp_directory_path() / "lumen-test-cache").string());
}

SelfTestOptions one_format() {
  SelfTestOptions what;
  what.formats = {FormatLibrary::builtin().get("q8_0")};
  return what;
}

TEST(Examine, TheProcessorIsUsable) {
  const auto all = self_test_cpu(kept(), one_format());
  ASSERT_EQ(all.size(), 1U);
  EXPECT_TRUE(all[0].usable) << all[0].refusal;
  EXPECT_EQ(all[0].machine, machine::native_machine()->name);
  EXPECT_GT(all[0].trials.size(), 12U);
  EXPECT_GT(all[0].memory_rate, 1e8);
  EXPECT_EQ(all[0].determinism.name, kAnyThreads) << all[0].determinism.detail;
  EXPECT_TRUE(all[0].refused.empty());
  EXPECT_GT(all[0].memory.total, all[0].memory.free);
}

class ExamineGpu : public testing::TestWithParam<GpuVendor> {
 protected:
  ExamineGpu() : fake(GetParam()) { fake.run_machine_code(); }
  Engine::Options on_gpu() const {
    Engine::Options o = kept();
    o.machine = machine::native_machine();
    return o;
  }
  StandIn fake;
};

TEST_P(ExamineGpu, OneThatComputesIsUsable) {
  fake->devices = 2;
  const auto all = self_test_gpus(survey_gpus(GetParam()), on_gpu(), one_format());
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[1].device, fake.device() + ":1");
  for (const SelfTest& e : all) {
    EXPECT_TRUE(e.usable) << e.refusal;
    EXPECT_GT(e.memory_rate, 0);
    EXPECT_EQ(e.determinism.name, kSameDevice);
  }
}

// What is said of a GPU is what its machine has: f16 and bf16 go through matrix instructions of their own.
TEST_P(ExamineGpu, MatrixInstructionsAreToldOf) {
  fake->major = 9;
  fake->architecture = "gfx942";
  SelfTestOptions quick;
  quick.tries = false;
  const auto all = self_test_gpus(survey_gpus(GetParam()), kept(), quick);
  ASSERT_EQ(all.size(), 1U);
  EXPECT_TRUE(all[0].usable) << all[0].refusal;
  for (const char* kind : {"f16", "bf16"}) {
    const auto multiplies = [&](const SelfTest::Product& p) {
      return p.left == kind && p.right == kind && p.sums == "f32";
    };
    EXPECT_EQ(std::ranges::count_if(all[0].products, multiplies), 1) << all[0].machine << " " << kind;
    EXPECT_EQ(std::ranges::count(all[0].emulated, kind, &SelfTest::Emulated::kind), 0) << all[0].machine << " " << kind;
  }
}

TEST_P(ExamineGpu, OneThatComputesWronglyIsRefused) {
  fake->corrupts = true;
  const TemporaryFolder folder;  // results are remembered
  Engine::Options mine = on_gpu();
  mine.cache_folder = folder.path();
  const auto all = self_test_gpus(survey_gpus(GetParam()), mine, {});
  ASSERT_EQ(all.size(), 1U);
  EXPECT_FALSE(all[0].usable);
  EXPECT_NE(all[0].refusal.find("disagree"), std::string::npos) << all[0].refusal;
  EXPECT_FALSE(all[0].advice.empty());
}

TEST_P(ExamineGpu, OneWithoutCodeIsRefusedAndDescribed) {
  fake->major = 3;
  fake->architecture = "gfx803";
  const auto all = self_test_gpus(survey_gpus(GetParam()), kept(), one_format());
  ASSERT_EQ(all.size(), 1U);
  EXPECT_FALSE(all[0].usable);
  EXPECT_NE(all[0].refusal.find("no code"), std::string::npos) << all[0].refusal;
  EXPECT_NE(all[0].description.find("Stand-in A"), std::string::npos) << all[0].description;
  EXPECT_TRUE(all[0].trials.empty());
}

TEST_P(ExamineGpu, ADriverThatFailsIsARefusalNotACrash) {
  fake->fail_symbol = symbol_of(GetParam(), "launch");
  fake->fail_code = 719;
  const auto all = self_test_gpus(survey_gpus(GetParam()), on_gpu(), {});
  ASSERT_EQ(all.size(), 1U);
  EXPECT_FALSE(all[0].usable);
  EXPECT_NE(all[0].refusal.find("719"), std::string::npos) << all[0].refusal;
}

INSTANTIATE_TEST_SUITE_P(Vendors, ExamineGpu, testing::Values(GpuVendor::cuda, GpuVendor::hip),
                         [](const auto& instance) { return std::string(vendor_name(instance.param)); });

}  // namespace
}  // namespace lumen::run

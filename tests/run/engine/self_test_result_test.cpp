// Needs: cpu. A GPU is tried on its first use; what was found is remembered; one that computes wrongly is not used.
#include "run/engine/self_test_result.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file/file.h"
#include "base/sealed/sealed.h"
#include "run/engine/engine.h"
#include "tests/run/damage.h"
#include "tests/run/graphs.h"
#include "tests/run/stand_in.h"

namespace lumen::run {
namespace {

class Verdict : public testing::TestWithParam<GpuVendor> {
 protected:
  Verdict() : fake(GetParam()) { fake.run_machine_code(); }
  Engine::Options on_gpu() const {
    Engine::Options o = options(folder.path());
    o.device = fake.device();
    o.machine = machine::native_machine();
    return o;
  }
  int64_t launches() { return fake->count(symbol_of(GetParam(), "launch")); }

  std::filesystem::path results_folder() const {
    return folder.path() / ("user-" + std::to_string(::geteuid())) / "verdicts";
  }

  TemporaryFolder folder;
  StandIn fake;
};

TEST_P(Verdict, IsGivenOnceAndKept) {
  {
    Engine first(on_gpu());
  }
  EXPECT_GT(launches(), 7);
  fake->calls.clear();
  {
    Engine second(on_gpu());
  }
  EXPECT_EQ(launches(), 0);
  fake->version += GetParam() == GpuVendor::cuda ? 10 : 1;
  {
    Engine newer(on_gpu());
  }
  EXPECT_GT(launches(), 7) << "another driver is another GPU";
}

TEST_P(Verdict, WrongKernelsAreNotUsed) {
  fake->corrupts = true;
  for (int i = 0; i < 2; ++i) {
    try {
      Engine engine(on_gpu());
      FAIL() << "a GPU that computes wrongly was used";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::hardware);
      EXPECT_NE(std::string(e.what()).find("disagree"), std::string::npos) << e.what();
      EXPECT_FALSE(e.hint().empty());
    }
    if (i == 0) fake->calls.clear();
  }
  EXPECT_EQ(launches(), 0) << "the second time it was known";
}

TEST_P(Verdict, DamageIsTriedAgain) {
  {
    Engine first(on_gpu());
  }
  int results = 0;
  for (const auto& entry : std::filesystem::directory_iterator(results_folder()))
    write_file_atomic(entry.path(), results++ == 0 ? "sound" : "so");
  EXPECT_EQ(results, 1);
  fake->calls.clear();
  {
    Engine second(on_gpu());
  }
  EXPECT_GT(launches(), 7);
}

// A result that says "sound" of a GPU that is not would be worst: whatever part of the file is another, it is not
// taken.
TEST_P(Verdict, EveryPartOfTheFileIsSealed) {
  {
    Engine first(on_gpu());
  }
  const std::filesystem::path file = std::filesystem::directory_iterator(results_folder())->path();
  for (const auto& [what, content] : damaged_forms(read_file(file))) {
    put_in_place(file, content);
    fake->calls.clear();
    Engine again(on_gpu());
    EXPECT_GT(launches(), 7) << what;
  }
}

// With a good seal, and yet no result: another version may have written it.
TEST_P(Verdict, WhatIsNoResultIsTriedAgain) {
  {
    Engine first(on_gpu());
  }
  const std::string name = std::filesystem::directory_iterator(results_folder())->path().filename();
  const std::string many = "without: row why\n";
  std::string endless;
  for (int i = 0; i < 1001; ++i) endless += many;
  for (const std::string& text : {std::string("soun"), std::string("sound\n"), std::string("without: "),
                                  std::string("without: row"), many + "sound", std::string(4, '\0'), endless}) {
    SealedFolder(folder.path()).write("verdicts", name, text);
    fake->calls.clear();
    Engine again(on_gpu());
    EXPECT_GT(launches(), 7) << text.substr(0, 40);
  }
}

// What cannot run computes nothing wrong, and is no result on the GPU.
TEST_P(Verdict, AKernelThatCannotRunIsNoVerdict) {
  fake->fail_symbol = symbol_of(GetParam(), "launch");
  fake->fail_code = 1;
  Engine engine(on_gpu());
  EXPECT_FALSE(std::filesystem::exists(results_folder()) && !std::filesystem::is_empty(results_folder()));
  EXPECT_EQ(disagreement({{"map", "", false, "no", false}, {"dot", "", true, "", true}}), "");
  EXPECT_EQ(disagreement({{"map", "", false, "off", true}}), "map: off");
}

// A processor is tried as well, where what is found can be kept.
TEST(VerdictOfTheProcessor, IsGivenOnceAndKept) {
  const TemporaryFolder folder;
  const auto results = folder.path() / ("user-" + std::to_string(::geteuid())) / "verdicts";
  int64_t compiled = 0;
  for (int i = 0; i < 2; ++i) {
    Engine engine(options(folder.path()));
    EXPECT_TRUE(engine.refused().empty());
    compiled += std::distance(std::filesystem::directory_iterator(results), std::filesystem::directory_iterator());
  }
  EXPECT_EQ(compiled, 2) << "one result, and no other the second time";
}

INSTANTIATE_TEST_SUITE_P(Vendors, Verdict, testing::Values(GpuVendor::cuda, GpuVendor::hip),
                         [](const auto& instance) { return std::string(vendor_name(instance.param)); });

}  // namespace
}  // namespace lumen::run

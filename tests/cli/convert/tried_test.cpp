// Needs: cpu. `quantize` on a GPU's stand-in whose kernels that round are wrong: they are named, the processor's take
// their place, and the file is what it is on a right device, byte for byte.
#include <unistd.h>

#include <set>

#include "run/engine/launch_trial/policy.h"
#include "tests/cli/convert/tiny_model.h"
#include "tests/run/stand_in.h"

namespace lumen::cli {
namespace {

class TriedTest : public TinyModelTest {
 protected:
  ~TriedTest() override { run::set_launch_trials(run::LaunchTrials::automatic); }
};

TEST_F(TriedTest, QuantizeIsRightWhereKernelsAreWrong) {
  run::StandIn fake(run::GpuVendor::hip);
  fake.run_machine_code();
  std::set<void*> wrong;
  std::string planted;
  const auto find = fake->find;
  const auto execute = fake->execute;
  fake->find = [&, find](const std::string& image, const std::string& symbol) {
    void* function = find(image, symbol);
    if (!planted.empty() && symbol.find(planted) != std::string::npos) wrong.insert(function);
    return function;
  };
  fake->execute = [&, execute](void* function, std::span<void* const> arguments, unsigned blocks, unsigned threads) {
    execute(function, arguments, blocks, threads);
    const size_t blob = planted == "feedback" ? 4 : 1;
    if (wrong.contains(function)) static_cast<char*>(arguments[blob])[1] = 0x5a;
  };
  const std::vector<std::string> gpu{"--device", "hip",         "--machine", "native",
                                     "--cache",  path("cache"), "--try",     "always"};
  for (const auto& [kernel, format, strategy] :
       {std::tuple{"encode", "q4_0", "rtn"}, {"feedback", "int4_g32_asym", "hqq"}}) {
    const auto quantized = [&](const std::string& name, const std::vector<std::string>& where) {
      const Outcome o = lumen({"quantize", path("m/model.gguf"), path(name), format, "--strategy", strategy}, where);
      EXPECT_EQ(o.code, 0) << o.error;
      return o;
    };
    planted.clear();
    quantized("right.gguf", {});
    quantized("gpu.gguf", gpu);
    EXPECT_EQ(read("gpu.gguf"), read("right.gguf")) << "without a fault";
    planted = kernel;
    std::vector<std::string> trusting = gpu;
    trusting.back() = "never";
    quantized("wrong.gguf", trusting);
    EXPECT_NE(read("wrong.gguf"), read("right.gguf")) << "the fault is none";
    const std::string user = "cache/user-" + std::to_string(::geteuid());
    EXPECT_GT(std::filesystem::remove_all(path(user + "/trials")), 1U);
    const Outcome o = quantized("mended.gguf", gpu);
    EXPECT_EQ(read("mended.gguf"), read("right.gguf"));
    EXPECT_TRUE(contains(o.error, "computes wrongly: ")) << o.error;
    EXPECT_TRUE(contains(o.error, ": the processor takes its place")) << o.error;
  }
}

}  // namespace
}  // namespace lumen::cli

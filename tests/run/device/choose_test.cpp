// Needs: cpu. What people may type for a device, and what "auto" takes.
#include "run/device/choose/choose.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "tests/run/stand_in.h"

namespace lumen::run {
namespace {

TEST(Choose, DevicesByName) {
  EXPECT_EQ(parse_device("").kind, DeviceChoice::Kind::cpu);
  EXPECT_EQ(parse_device("cpu").kind, DeviceChoice::Kind::cpu);
  EXPECT_EQ(parse_device("auto").kind, DeviceChoice::Kind::automatic);
  EXPECT_EQ(parse_device("cuda").vendor, GpuVendor::cuda);
  EXPECT_EQ(parse_device("cuda").ordinal, 0);
  EXPECT_EQ(parse_device("hip:3").vendor, GpuVendor::hip);
  EXPECT_EQ(parse_device("hip:3").ordinal, 3);
  for (const char* wrong :
       {"gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda:99999999999", "cpu:0", "CUDA", "auto:1", ":0"}) {
    try {
      parse_device(wrong);
      FAIL() << wrong;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::usage) << wrong;
      EXPECT_NE(e.hint().find("cuda:N"), std::string::npos);
    }
  }
}

TEST(Choose, NodesOfDriversTellOfGpus) {
  const std::filesystem::path folder = testing::TempDir() + "/lumen-nodes";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  EXPECT_FALSE(has_gpu_node(folder));
  EXPECT_FALSE(has_gpu_node(folder / "none"));
  for (const char* const node : {"nvidia0", "kfd"}) {
    std::ofstream(folder / node) << "";
    EXPECT_TRUE(has_gpu_node(folder)) << node;
    std::filesystem::remove(folder / node);
  }
  std::filesystem::remove_all(folder);
}

// No row of the table is for such a GPU, so the processor is taken, and people are told why.
TEST(Choose, AutoTakesTheProcessorWhereNoGpuCanBeUsed) {
  StandIn cuda(GpuVendor::cuda), hip(GpuVendor::hip);
  cuda->major = 3;
  hip->devices = 0;
  testing::internal::CaptureStderr();
  const auto device = open_device(parse_device("auto"), nullptr, 1, {});
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(device->reads_host_memory());
  EXPECT_NE(said.find("device: cpu"), std::string::npos) << said;
  EXPECT_NE(said.find("sm_30"), std::string::npos) << said;
  EXPECT_NE(said.find("hipErrorNoDevice"), std::string::npos) << said;
}

}  // namespace
}  // namespace lumen::run

// Needs: cpu. GPUs of several ranks, by stand-ins for their drivers and for NCCL: the same bytes as through the host,
// and through the host where there is no such library.
#include "run/ranks/gpu_transport.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "run/device/gpu/gpu.h"
#include "tests/run/ranks/among.h"
#include "tests/run/stand_in.h"

namespace lumen::run {
namespace {

class GpuTransportTest : public testing::TestWithParam<GpuVendor> {
 protected:
  GpuTransportTest() : fake(GetParam()) { fake->devices = 2; }
  ~GpuTransportTest() override { ::unsetenv(variable()); }
  const char* variable() const { return GetParam() == GpuVendor::cuda ? "LUMEN_NCCL_LIBRARY" : "LUMEN_RCCL_LIBRARY"; }
  std::string library() const {
    return std::string(LUMEN_BINARY_DIR) + "/tests/libfake_" + vendor_name(GetParam()) + ".so";
  }

  // Every rank sends numbers of its own to each, itself included, out of its GPU's memory into that of others.
  std::vector<std::string> exchange(std::string* carries) {
    return among_shared(2, [&](Communicator& own) {
      const std::string name = fmt::format("{}:{}", vendor_name(GetParam()), own.rank());
      std::unique_ptr<Device> device;
      for (int r = 0; r < 2; ++r) {  // the stand-in opens one after the other
        if (r == own.rank()) device = open_gpu(GetParam(), own.rank(), machine::native_machine());
        own.barrier();
      }
      own.use(*device, name);
      if (own.rank() == 0) *carries = own.carries();
      std::vector<int32_t> out(200), in(200);
      for (int i = 0; i < 200; ++i) out[i] = own.rank() * 1000 + i;
      auto* const from = reinterpret_cast<std::byte*>(device->allocate(800));
      auto* const to = reinterpret_cast<std::byte*>(device->allocate(800));
      device->copy_in(from, out.data(), 800);
      own.barrier();
      own.exchange({{{from, 400}}, {{from + 400, 100}, {from + 500, 0}, {from + 500, 300}}},
                   own.rank() == 0 ? TakenPieces{{{to, 400}}, {{to + 400, 400}}}
                                   : TakenPieces{{{to, 100}, {to, 0}, {to + 100, 300}},
                                                 {{to + 400, 100}, {to, 0}, {to + 500, 300}}});
      device->copy_out(in.data(), to, 800);
      for (int i = 0; i < 100; ++i) {
        EXPECT_EQ(in[i], own.rank() * 100 + i);
        EXPECT_EQ(in[100 + i], 1000 + own.rank() * 100 + i);
      }
      own.barrier();
      device->release(from);
      device->release(to);
      own.barrier();
    });
  }

  StandIn fake;
};
INSTANTIATE_TEST_SUITE_P(, GpuTransportTest, testing::Values(GpuVendor::cuda, GpuVendor::hip),
                         [](const auto& p) { return vendor_name(p.param); });

TEST_P(GpuTransportTest, ByTheVendorsLibrary) {
  ::setenv(variable(), library().c_str(), 1);
  std::string carries;
  EXPECT_EQ(exchange(&carries), kNoErrors2);
  EXPECT_EQ(carries, GetParam() == GpuVendor::cuda ? "NCCL 2.23.4" : "RCCL 2.23.4");
}

TEST_P(GpuTransportTest, ThroughTheHostWithoutIt) {
  ::setenv(variable(), "/nowhere/libnccl.so", 1);
  std::string carries;
  testing::internal::CaptureStderr();
  EXPECT_EQ(exchange(&carries), kNoErrors2);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("through memory of the host"), std::string::npos);
  EXPECT_EQ(carries, "");
}

}  // namespace
}  // namespace lumen::run

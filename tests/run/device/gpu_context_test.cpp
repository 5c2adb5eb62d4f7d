// Needs: cpu. A GPU that others use too, against the driver's stand-in.
#include "run/device/gpu/gpu_context.h"

#include <gtest/gtest.h>

#include "run/device/gpu/gpu.h"
#include "tests/run/stand_in.h"

namespace lumen::run {
namespace {

TEST(SharedGpu, SaysWhereItsMemoryLies) {
  for (const GpuVendor vendor : {GpuVendor::cuda, GpuVendor::hip}) {
    StandIn fake(vendor);
    fake->devices = 2;
    auto device = open_gpu(vendor, 1, nullptr);
    const auto shared = shared_gpu(*device);
    ASSERT_NE(shared, nullptr);
    EXPECT_EQ(shared->vendor(), vendor);
    EXPECT_EQ(shared->ordinal(), 1);
    device.reset();
    shared->finish();  // may outlive it
  }
  EXPECT_EQ(shared_gpu(*open_null()), nullptr);
}

// What is asked of any stream of the GPU is waited for, not of Lumen's alone.
TEST(SharedGpu, WaitsForWhatOthersAsked) {
  for (const GpuVendor vendor : {GpuVendor::cuda, GpuVendor::hip}) {
    StandIn fake(vendor);
    const auto device = open_gpu(vendor, 0, nullptr);
    void* const memory = device->allocate(64);
    device->synchronize();
    const auto others = device->make_stream();
    others->copy(memory, static_cast<std::byte*>(memory) + 32, 32);
    EXPECT_EQ(fake->bytes_within, 0);
    shared_gpu(*device)->finish();
    EXPECT_EQ(fake->bytes_within, 32);
    device->release(memory);
  }
}

// A thread that others bound to a GPU is bound to it behind Lumen's work, and Lumen's work finds its own.
TEST(SharedGpu, LeavesAThreadAsItWas) {
  StandIn fake(GpuVendor::cuda);
  fake->devices = 2;
  const auto first = open_gpu(GpuVendor::cuda, 0, nullptr);
  const GpuSymbols& symbols = *open_gpu_library(GpuVendor::cuda);
  void *others = nullptr, *mine = nullptr;
  ASSERT_EQ(symbols.context_get(&mine), 0);
  ASSERT_EQ(symbols.context_retain(&others, 1), 0);
  ASSERT_NE(mine, others);
  ASSERT_EQ(symbols.context_set(others), 0);
  {
    const SharedGpu::Visit visit(shared_gpu(*first)->driver());
    first->release(first->allocate(64));
    void* now = nullptr;
    ASSERT_EQ(symbols.context_get(&now), 0);
    EXPECT_EQ(now, mine);
  }
  void* now = nullptr;
  ASSERT_EQ(symbols.context_get(&now), 0);
  EXPECT_EQ(now, others);
  symbols.context_release(1);
}

}  // namespace
}  // namespace lumen::run

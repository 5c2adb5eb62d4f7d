// Needs: a GPU (--device cuda or hip, or the first there is; skipped without one). The driver on real hardware with a
// small kernel: compiled, launched, recorded, replayed, guarded, timed; and what it says about code it does not accept.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>

#include "base/error.h"
#include "emit/emit.h"
#include "kernel/loop/build.h"
#include "tests/run/named_gpu.h"

namespace lumen::run {
namespace {

constexpr int64_t kCount = 100000, kBytes = kCount * 4;

// c[i] = a[i] + b[i]; where the sum is negative the guard fails with code 3 and the number's index. The first failure
// wins: only a zero code is replaced.
const loop::Kernel& add_kernel() {
  static const loop::Kernel kernel = [] {
    loop::Builder build("add");
    const auto a = build.param("a", kBytes, false), b = build.param("b", kBytes, false),
               c = build.param("c", kBytes, true);
    build.loop(loop::LoopKind::parallel, build.i64(0), build.i64(kCount), 1, [&](loop::Expr task) {
      const loop::VType f32{Scalar::f32, 1};
      const loop::Expr sum = build.load(a, f32, task * 4, 4) + build.load(b, f32, task * 4, 4);
      build.guard(build.op(ScalarOp::le_, build.real(0, f32), sum), task, loop::kGuardFinite);
      build.store(c, sum, task * 4, 4);
    });
    return build.finish();
  }();
  return kernel;
}

class GpuSmoke : public testing::Test {
 protected:
  void SetUp() override {
    test::NamedGpu gpu = test::open_named_gpu();
    if (!gpu.device) GTEST_SKIP() << "no GPU here: " << gpu.why;
    device = std::move(gpu.device);
    vendor = gpu.vendor;
    const emit::LaunchShape shape = emit::launch_shape(add_kernel(), device->machine());
    spread = {kCount, false, shape.blocks, static_cast<int>(shape.threads), shape.shared_bytes};
    symbol = emit::symbol_name(add_kernel());
  }
  std::string text() const { return emit::emit({&add_kernel(), 1}, device->machine(), emit::Output::object); }
  void* numbers(float first, float step) {
    std::vector<float> x(static_cast<size_t>(kCount));
    for (size_t i = 0; i < x.size(); ++i) x[i] = first + step * static_cast<float>(i % 1000);
    void* at = device->allocate(kBytes);
    device->copy_in(at, x.data(), kBytes);
    return at;
  }
  std::vector<float> get(const void* at) {
    std::vector<float> x(static_cast<size_t>(kCount));
    device->copy_out(x.data(), at, kBytes);
    return x;
  }
  std::unique_ptr<Device> device;
  GpuVendor vendor = GpuVendor::cuda;
  LaunchConfig spread;
  std::string symbol;
};

TEST_F(GpuSmoke, AddsRecordsAndGuards) {
  std::printf("%s\n%s", device->describe().c_str(), device->identity().c_str());
  const auto start = std::chrono::steady_clock::now();
  const std::string code = device->prepare(text());
  const std::chrono::duration<double> compiled = std::chrono::steady_clock::now() - start;
  EXPECT_TRUE(
      code.starts_with("\x7f"
                       "ELF"))
      << "the driver's linker gave no machine code";
  EXPECT_EQ(device->prepare(code), code);
  const auto module = device->load(code);
  void* kernel = module->find(symbol, 0);
  void *a = numbers(1, 2), *b = numbers(0.5F, 0.25F), *c = device->allocate(kBytes);
  auto* status = static_cast<LaunchStatus*>(device->allocate(sizeof(LaunchStatus)));
  EXPECT_EQ(get(c), std::vector<float>(static_cast<size_t>(kCount), 0.0F)) << "memory is not zero";

  void* buffers[] = {a, b, c};
  device->launch(kernel, buffers, spread, status);
  std::vector<float> sums = get(c);
  for (size_t i = 0; i < sums.size(); ++i) ASSERT_EQ(sums[i], 1.5F + 2.25F * static_cast<float>(i % 1000)) << i;

  // b += a, twice in one recording, replayed five times.
  void* in_place[] = {a, b, b};
  ASSERT_TRUE(device->records());
  device->begin_recording();
  device->launch(kernel, in_place, spread, status);
  device->launch(kernel, in_place, spread, status);
  const auto recording = device->end_recording();
  ASSERT_TRUE(recording);
  for (int i = 0; i < 5; ++i) device->replay(*recording);
  sums = get(b);
  for (size_t i = 0; i < sums.size(); ++i) ASSERT_EQ(sums[i], 10.5F + 20.25F * static_cast<float>(i % 1000)) << i;

  LaunchStatus seen;
  device->copy_out(&seen, status, sizeof seen);
  EXPECT_EQ(seen.code, 0);
  void* minus = numbers(-4000, 0);
  void* failing[] = {a, minus, c};
  device->launch(kernel, failing, spread, status);
  device->copy_out(&seen, status, sizeof seen);
  EXPECT_EQ(seen.code, 3);
  EXPECT_TRUE(seen.detail >= 0 && seen.detail < kCount) << seen.detail;

  const auto marks = device->make_marks(2);
  const int kRounds = test::is_interpreted() ? 2 : 200;
  const auto direct = std::chrono::steady_clock::now();
  marks->set(0);
  for (int i = 0; i < kRounds; ++i) device->launch(kernel, buffers, spread, status);
  marks->set(1);
  const std::chrono::duration<double> asked = std::chrono::steady_clock::now() - direct;
  std::printf(
      "compiled in %.1f ms; a launch costs the host %.2f us and takes %.2f us; copies %.0f GB/s; free %.1f GiB\n",
      compiled.count() * 1e3, asked.count() / kRounds * 1e6, marks->seconds(0, 1) / kRounds * 1e6,
      device->measure_copies().value_or(0) / 1e9, static_cast<double>(device->memory().free) / (1 << 30));
  for (void* p : {a, b, c, minus, static_cast<void*>(status)}) device->release(p);
}

TEST_F(GpuSmoke, CopiesLargeAndSmall) {
  constexpr size_t kLarge = 40000000;
  std::vector<uint8_t> x(kLarge), y(kLarge);
  for (size_t i = 0; i < kLarge; ++i) x[i] = static_cast<uint8_t>(i * 2654435761U >> 13);
  void* at = device->allocate(kLarge);
  const auto start = std::chrono::steady_clock::now();
  device->copy_in(at, x.data(), kLarge);
  device->synchronize();
  const auto middle = std::chrono::steady_clock::now();
  device->copy_out(y.data(), at, kLarge);
  const std::chrono::duration<double> up = middle - start, down = std::chrono::steady_clock::now() - middle;
  EXPECT_EQ(x, y);
  std::printf("to the GPU %.1f GB/s, back %.1f GB/s\n", kLarge / up.count() / 1e9, kLarge / down.count() / 1e9);
  for (int i = 0; i < 100000; ++i) device->copy_in(at, &i, sizeof i);
  int last = 0;
  device->copy_out(&last, at, sizeof last);
  EXPECT_EQ(last, 99999);
  device->release(at);
}

TEST_F(GpuSmoke, WhatIsWrongIsExplained) {
  try {
    // CUDA compiles what is prepared, HIP looks at what is loaded.
    device->load(
        device->prepare(".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry f() { no.such.thing; }\n"));
    ADD_FAILURE() << "nonsense was compiled";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::hardware);
    EXPECT_EQ(std::string(e.what()).find("compiler reports") != std::string::npos, vendor == GpuVendor::cuda)
        << e.what();
    EXPECT_FALSE(e.hint().empty());
    std::printf("%s\n  hint: %s\n", e.what(), e.hint().c_str());
  }
  const auto module = device->load(text());  // text is compiled while it is loaded, too
  EXPECT_THROW(module->find("lumen_subtract", 0), Error);
  EXPECT_THROW(device->allocate(int64_t{1} << 45), Error);
  try {
    open_gpu(vendor, 999);
    ADD_FAILURE() << vendor_name(vendor) << ":999 was opened";
  } catch (const Error& e) {
    std::printf("%s\n", e.what());
  }
}

// The last one: an address outside all memory ends the context, and everything after it says so.
TEST_F(GpuSmoke, ZZAnIllegalAddressIsAnError) {
  if (vendor == GpuVendor::hip && !test::is_interpreted())
    GTEST_SKIP() << "ROCm ends the process of a kernel that leaves its memory, with a message of its own";
  const auto module = device->load(device->prepare(text()));
  void* kernel = module->find(symbol, 0);
  auto* nowhere = reinterpret_cast<void*>(uintptr_t{1} << 44);
  void* buffers[] = {nowhere, nowhere, nowhere};
  device->launch(kernel, buffers, spread, static_cast<LaunchStatus*>(nowhere));
  try {
    device->synchronize();
    ADD_FAILURE() << "an illegal address went unnoticed";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::hardware);
    const char* name = vendor == GpuVendor::cuda ? "ILLEGAL_ADDRESS" : "hipErrorLaunchFailure";
    EXPECT_NE(std::string(e.what()).find(name), std::string::npos) << e.what();
    std::printf("%s\n  hint: %s\n", e.what(), e.hint().c_str());
  }
}

}  // namespace
}  // namespace lumen::run

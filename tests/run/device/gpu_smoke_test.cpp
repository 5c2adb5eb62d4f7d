// Needs: an NVIDIA GPU, and skips without one. The driver on real hardware with a kernel written by hand: compiled by
// the driver, launched, recorded, replayed, guarded, timed; and what it says about code it does not accept.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>

#include "base/error.h"
#include "run/device/gpu/gpu.h"

namespace lumen::run {
namespace {

// c[i] = a[i] + b[i] in 100000 numbers; where the sum is negative the guard fails with code 3 and the number's index.
// The first failure wins: only a zero code is replaced.
constexpr const char* kAdd = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry lumen_add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 status)
{
  .reg .pred %p<4>;
  .reg .f32 %f<4>;
  .reg .b32 %r<5>;
  .reg .b64 %rd<14>;
  ld.param.u64 %rd1, [a];
  ld.param.u64 %rd2, [b];
  ld.param.u64 %rd3, [c];
  ld.param.u64 %rd4, [status];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.s32 %r4, %r1, %r2, %r3;
  setp.ge.u32 %p1, %r4, 100000;
  @%p1 bra done;
  mul.wide.u32 %rd5, %r4, 4;
  add.s64 %rd6, %rd1, %rd5;
  add.s64 %rd7, %rd2, %rd5;
  add.s64 %rd8, %rd3, %rd5;
  ld.global.f32 %f1, [%rd6];
  ld.global.f32 %f2, [%rd7];
  add.rn.f32 %f3, %f1, %f2;
  st.global.f32 [%rd8], %f3;
  setp.geu.f32 %p2, %f3, 0f00000000;
  @%p2 bra done;
  mov.u64 %rd9, 0;
  mov.u64 %rd10, 3;
  atom.global.cas.b64 %rd11, [%rd4], %rd9, %rd10;
  setp.ne.s64 %p3, %rd11, 0;
  @%p3 bra done;
  cvt.u64.u32 %rd12, %r4;
  st.global.u64 [%rd4+8], %rd12;
done:
  ret;
}
)";
constexpr int64_t kCount = 100000, kBytes = kCount * 4;
constexpr LaunchConfig kSpread{kCount, false, (kCount + 127) / 128, 128, 0};

class GpuSmoke : public testing::Test {
 protected:
  void SetUp() override {
    const GpuSurvey survey = survey_gpus(GpuVendor::cuda);
    if (survey.gpus.empty()) GTEST_SKIP() << "no NVIDIA GPU here: " << survey.refusal;
    // The table's row plays no part here; any machine will do.
    device = open_gpu(GpuVendor::cuda, 0, machine::native_machine());
  }
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
};

TEST_F(GpuSmoke, AddsRecordsAndGuards) {
  std::printf("%s\n%s", device->describe().c_str(), device->identity().c_str());
  const auto start = std::chrono::steady_clock::now();
  const std::string code = device->prepare(kAdd);
  const std::chrono::duration<double> compiled = std::chrono::steady_clock::now() - start;
  EXPECT_TRUE(
      code.starts_with("\x7f"
                       "ELF"))
      << "the driver's linker gave no machine code";
  EXPECT_EQ(device->prepare(code), code);
  const auto module = device->load(code);
  void* kernel = module->find("lumen_add", 0);
  void *a = numbers(1, 2), *b = numbers(0.5F, 0.25F), *c = device->allocate(kBytes);
  auto* status = static_cast<LaunchStatus*>(device->allocate(sizeof(LaunchStatus)));
  EXPECT_EQ(get(c), std::vector<float>(static_cast<size_t>(kCount), 0.0F)) << "memory is not zero";

  void* buffers[] = {a, b, c};
  device->launch(kernel, buffers, kSpread, status);
  std::vector<float> sums = get(c);
  for (size_t i = 0; i < sums.size(); ++i) ASSERT_EQ(sums[i], 1.5F + 2.25F * static_cast<float>(i % 1000)) << i;

  // b += a, twice in one recording, replayed five times.
  void* in_place[] = {a, b, b};
  ASSERT_TRUE(device->records());
  device->begin_recording();
  device->launch(kernel, in_place, kSpread, status);
  device->launch(kernel, in_place, kSpread, status);
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
  device->launch(kernel, failing, kSpread, status);
  device->copy_out(&seen, status, sizeof seen);
  EXPECT_EQ(seen.code, 3);
  EXPECT_TRUE(seen.detail >= 0 && seen.detail < kCount) << seen.detail;

  const auto marks = device->make_marks(2);
  constexpr int kRounds = 200;
  const auto direct = std::chrono::steady_clock::now();
  marks->set(0);
  for (int i = 0; i < kRounds; ++i) device->launch(kernel, buffers, kSpread, status);
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
    device->prepare(".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry f() { no.such.thing; }\n");
    ADD_FAILURE() << "nonsense was compiled";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::hardware);
    EXPECT_NE(std::string(e.what()).find("compiler says"), std::string::npos) << e.what();
    std::printf("%s\n  hint: %s\n", e.what(), e.hint().c_str());
  }
  const auto module = device->load(kAdd);  // text is compiled while it is loaded, too
  EXPECT_THROW(module->find("lumen_subtract", 0), Error);
  EXPECT_THROW(device->allocate(int64_t{1} << 45), Error);
  try {
    open_gpu(GpuVendor::cuda, 999, machine::native_machine());
    ADD_FAILURE() << "cuda:999 was opened";
  } catch (const Error& e) {
    std::printf("%s\n", e.what());
  }
}

// The last one: an address outside all memory ends the context, and everything after it says so.
TEST_F(GpuSmoke, ZZAnIllegalAddressIsAnError) {
  const auto module = device->load(device->prepare(kAdd));
  void* kernel = module->find("lumen_add", 0);
  auto* nowhere = reinterpret_cast<void*>(uintptr_t{1} << 44);
  void* buffers[] = {nowhere, nowhere, nowhere};
  device->launch(kernel, buffers, kSpread, static_cast<LaunchStatus*>(nowhere));
  try {
    device->synchronize();
    ADD_FAILURE() << "an illegal address went unnoticed";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::hardware);
    EXPECT_NE(std::string(e.what()).find("ILLEGAL_ADDRESS"), std::string::npos) << e.what();
    std::printf("%s\n  hint: %s\n", e.what(), e.hint().c_str());
  }
}

}  // namespace
}  // namespace lumen::run

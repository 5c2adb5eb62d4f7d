// Needs: cpu. The GPU driver against stand-ins for both libraries: which functions it calls, in which order, with what;
// every way a driver can fail is an Error that says what and what to do; everything taken is given back.
#include "run/device/gpu/gpu.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "run/device/available.h"
#include "run/device/gpu/gpu_symbols.h"
#include "tests/run/stand_in.h"

namespace lumen::run {
namespace {

// c = a + b over tasks of one number; a task whose sum is above 100 fails with its number.
void add_kernel(void* const* buffers, int64_t begin, int64_t end, int64_t* status) {
  const auto *a = static_cast<const float*>(buffers[0]), *b = static_cast<const float*>(buffers[1]);
  auto* c = static_cast<float*>(buffers[2]);
  for (int64_t i = begin; i < end; ++i) {
    c[i] = a[i] + b[i];
    if (c[i] > 100 && status[0] == 0) {
      status[0] = 1;
      status[1] = i;
    }
  }
}

class GpuTest : public testing::TestWithParam<GpuVendor> {
 protected:
  GpuTest() : fake(GetParam()) {
    fake.kernels["add"] = add_kernel;
    fake.run_kernels();
  }
  std::unique_ptr<Device> open(int ordinal = 0) { return open_gpu(GetParam(), ordinal, machine::native_machine()); }
  std::string symbol(const char* name) const { return symbol_of(GetParam(), name); }

  // Runs what must be refused; its Error has exit code 3 and a hint.
  static Error refused(const std::function<void()>& run) {
    try {
      run();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::hardware) << e.what();
      EXPECT_FALSE(e.hint().empty()) << e.what();
      return e;
    }
    ADD_FAILURE() << "nothing was refused";
    return {Exit::ok, ""};
  }
  static bool contains(const Error& e, const std::string& part) {
    return (std::string(e.what()) + "\n" + e.hint()).find(part) != std::string::npos;
  }

  StandIn fake;
};

// Device memory with numbers in it.
struct Numbers {
  Device& device;
  void* at;
  size_t count;
  Numbers(Device& d, const std::vector<float>& x) : device(d), at(d.allocate(bytes(x))), count(x.size()) {
    device.copy_in(at, x.data(), bytes(x));
  }
  ~Numbers() { device.release(at); }
  static int64_t bytes(const std::vector<float>& x) { return static_cast<int64_t>(x.size() * sizeof(float)); }
  std::vector<float> get() const {
    std::vector<float> x(count);
    device.copy_out(x.data(), at, bytes(x));
    return x;
  }
};

TEST_P(GpuTest, OpensAndSaysWhatItIs) {
  const auto device = open();
  EXPECT_NE(device->describe().find(fake.device() + ":0 Stand-in A"), std::string::npos) << device->describe();
  EXPECT_NE(device->describe().find("1.00 GiB"), std::string::npos);
  EXPECT_FALSE(device->reads_host_memory());
  EXPECT_TRUE(device->is_asynchronous());
  EXPECT_EQ(device->memory().total, int64_t{1} << 30);
  EXPECT_NE(device->identity().find(GetParam() == GpuVendor::cuda ? "sm_90 driver 12.8" : "driver 6.3.42134"),
            std::string::npos)
      << device->identity();
  EXPECT_EQ(fake->calls.at(0), symbol("init"));
}

TEST_P(GpuTest, MemoryIsZeroAndHoldsWhatIsCopied) {
  const auto device = open();
  for (int round = 0; round < 2; ++round)
    for (const size_t count : {size_t{1}, size_t{1000}, size_t{3000000}}) {
      std::vector<float> x(count);
      const Numbers numbers(*device, std::vector<float>(count, 0.0F));
      auto* fresh = device->allocate(static_cast<int64_t>(count));
      std::vector<char> bytes(count, 1);
      device->copy_out(bytes.data(), fresh, static_cast<int64_t>(count));
      EXPECT_EQ(bytes, std::vector<char>(count, 0));
      device->release(fresh);
      std::iota(x.begin(), x.end(), 0.0F);
      device->copy_in(numbers.at, x.data(), Numbers::bytes(x));
      const std::vector<float> kept = x;
      std::fill(x.begin(), x.end(), -1.0F);  // the copy has been taken already
      EXPECT_EQ(numbers.get(), kept);
    }
  void* nothing = device->allocate(0);
  device->copy_out(nothing, nothing, 0);
  device->release(nothing);
}

TEST_P(GpuTest, ManySmallCopiesKeepTheirOrder) {
  const auto device = open();
  const Numbers numbers(*device, std::vector<float>(8, 0.0F));
  std::vector<float> x(8);
  // More than the page-locked buffers hold together.
  for (int i = 0; i < 150000; ++i) {
    std::fill(x.begin(), x.end(), static_cast<float>(i));
    device->copy_in(numbers.at, x.data(), Numbers::bytes(x));
  }
  EXPECT_EQ(numbers.get(), x);
}

TEST_P(GpuTest, LaunchesWithTheAddressesInOrder) {
  const auto device = open();
  const auto module = device->load(device->prepare("text of a kernel"));
  void* kernel = module->find("add", 0);
  const Numbers a(*device, {1, 2, 3, 4}), b(*device, {10, 20, 30, 90}), c(*device, std::vector<float>(4));
  auto* status = static_cast<LaunchStatus*>(device->allocate(sizeof(LaunchStatus)));
  void* buffers[] = {a.at, b.at, c.at};
  device->launch(kernel, buffers, {3, false, 3, 1, 0}, status);
  EXPECT_TRUE(fake->launches.empty()) << "a launch waits for nothing";
  device->synchronize();
  ASSERT_EQ(fake->launches.size(), 1U);
  EXPECT_EQ(fake->launches[0].symbol, "add");
  EXPECT_EQ(fake->launches[0].blocks, 3U);
  EXPECT_EQ(fake->launches[0].argument_bytes, 4 * sizeof(void*));
  EXPECT_EQ(c.get(), (std::vector<float>{11, 22, 33, 0}));
  LaunchStatus seen;
  device->copy_out(&seen, status, sizeof seen);
  EXPECT_EQ(seen.code, 0);

  const Numbers large(*device, {1, 99, 100, 1});
  buffers[0] = large.at;
  device->launch(kernel, buffers, {4, false, 4, 1, 0}, status);
  device->launch(kernel, buffers, {0, false, 0, 1, 0}, status);  // nothing to do
  device->copy_out(&seen, status, sizeof seen);
  EXPECT_EQ(seen.code, 1);
  EXPECT_EQ(seen.detail, 1);
  EXPECT_EQ(fake->launches.size(), 2U);
  device->release(status);
}

TEST_P(GpuTest, RecordsAndReplays) {
  const auto device = open();
  ASSERT_TRUE(device->records());
  const auto module = device->load("text");
  void* kernel = module->find("add", 0);
  const Numbers a(*device, {1, 2}), b(*device, {1, 1});
  auto* status = static_cast<LaunchStatus*>(device->allocate(sizeof(LaunchStatus)));
  void* buffers[] = {a.at, b.at, a.at};
  device->synchronize();
  fake->calls.clear();
  device->begin_recording();
  device->launch(kernel, buffers, {2, false, 2, 1, 0}, status);
  device->launch(kernel, buffers, {2, false, 2, 1, 0}, status);
  auto recording = device->end_recording();
  ASSERT_TRUE(recording);
  EXPECT_EQ(fake->calls,
            (std::vector<std::string>{symbol("capture_begin"), symbol("launch"), symbol("launch"),
                                      symbol("capture_end"), symbol("graph_instantiate"), symbol("graph_destroy")}));
  device->synchronize();
  EXPECT_TRUE(fake->launches.empty()) << "recording executes nothing";
  for (int i = 0; i < 3; ++i) device->replay(*recording);
  EXPECT_EQ(a.get(), (std::vector<float>{7, 8}));
  EXPECT_EQ(fake->count(symbol("launch")), 2);
  EXPECT_EQ(fake->count(symbol("graph_launch")), 3);
  device->release(status);
}

// Where machine and driver know followers, kernels are launched so; those of a recorded step are not.
TEST_P(GpuTest, KernelsFollowEachOther) {
  machine::Machine follower = *machine::native_machine();
  follower.follows = true;
  const auto device = open_gpu(GetParam(), 0, std::make_shared<const machine::Machine>(follower));
  const auto module = device->load("text");
  void* kernel = module->find("add", 0);
  const Numbers a(*device, {1, 2}), b(*device, {1, 1});
  auto* status = static_cast<LaunchStatus*>(device->allocate(sizeof(LaunchStatus)));
  void* buffers[] = {a.at, b.at, a.at};
  const auto launch = [&] { device->launch(kernel, buffers, {2, false, 2, 1, 0}, status); };
  const int each = GetParam() == GpuVendor::cuda ? 1 : 0;
  launch();  // the first of a program waits in whole for what came before
  EXPECT_EQ(fake->count("cuLaunchKernelEx"), 0);
  launch();
  EXPECT_EQ(fake->count("cuLaunchKernelEx"), each);
  device->begin_recording();
  launch();
  launch();
  const auto recording = device->end_recording();
  ASSERT_TRUE(recording);
  EXPECT_EQ(fake->count("cuLaunchKernelEx"), 2 * each);  // the first of a recording is one of a program
  device->replay(*recording);
  EXPECT_EQ(a.get(), (std::vector<float>{5, 6}));
  for (const auto& between : std::vector<std::function<void()>>{[&] { device->synchronize(); }, [&] { a.get(); },
                                                                [&] { device->replay(*recording); },
                                                                [&] {
                                                                  const float one = 1;
                                                                  device->copy_in(a.at, &one, 4);
                                                                }}) {
    const int before = fake->count("cuLaunchKernelEx");
    between();
    launch();
    EXPECT_EQ(fake->count("cuLaunchKernelEx"), before);
    launch();
    EXPECT_EQ(fake->count("cuLaunchKernelEx"), before + each);
    device->launch(kernel, buffers, {2, false, 2, 1, 0, true}, status);  // it asks to be launched in whole
    EXPECT_EQ(fake->count("cuLaunchKernelEx"), before + each);
    launch();
    EXPECT_EQ(fake->count("cuLaunchKernelEx"), before + 2 * each);
  }
  device->release(status);
}

TEST_P(GpuTest, WithoutRecordingItSaysSoAndGoesOn) {
  fake->captures = false;
  const auto device = open();
  device->begin_recording();
  testing::internal::CaptureStderr();
  EXPECT_FALSE(device->end_recording());
  EXPECT_NE(testing::internal::GetCapturedStderr().find("one by one"), std::string::npos);
  EXPECT_FALSE(device->records());
  EXPECT_NE(device->describe().find("not recorded"), std::string::npos);
}

TEST_P(GpuTest, MarksTimeWhatLiesBetween) {
  const auto device = open();
  const auto module = device->load("text");
  void* kernel = module->find("add", 0);
  const Numbers a(*device, {1});
  auto* status = static_cast<LaunchStatus*>(device->allocate(sizeof(LaunchStatus)));
  void* buffers[] = {a.at, a.at, a.at};
  const auto marks = device->make_marks(2);
  marks->set(0);
  device->launch(kernel, buffers, {1, false, 1, 1, 0}, status);
  device->launch(kernel, buffers, {1, false, 1, 1, 0}, status);
  marks->set(1);
  EXPECT_DOUBLE_EQ(marks->seconds(0, 1), 0.5e-3);
  EXPECT_GT(device->measure_copies().value_or(0), 0);
  device->release(status);
}

TEST_P(GpuTest, ThreadsMayCopyAtOnce) {
  const auto device = open();
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&device, t] {
      for (int i = 0; i < 20; ++i) {
        const std::vector<float> x(1000, static_cast<float>(t * 100 + i));
        const Numbers numbers(*device, x);
        ASSERT_EQ(numbers.get(), x);
      }
    });
  for (std::thread& t : threads) t.join();
}

TEST_P(GpuTest, RefusesMemoryBeforeAskingForIt) {
  fake->bytes = int64_t{64} << 20;
  const auto device = open();
  void* half = device->allocate(int64_t{40} << 20);
  const int64_t before = fake->count(symbol("allocate_async"));
  const Error e = refused([&] { device->allocate(int64_t{40} << 20); });
  EXPECT_EQ(fake->count(symbol("allocate_async")), before) << "it was asked for";
  EXPECT_TRUE(contains(e, "are free")) << e.what();
  EXPECT_TRUE(contains(e, "Stand-in A")) << e.what();
  refused([&] { device->allocate(int64_t{1} << 62); });
  EXPECT_EQ(device->memory().free, int64_t{24} << 20);
  device->release(half);
  // What the pool keeps is free for this process, and given back to the driver where it lies in the way.
  device->synchronize();
  EXPECT_EQ(device->memory().free, int64_t{64} << 20);
  device->release(device->allocate(int64_t{60} << 20));
}

TEST_P(GpuTest, MemoryThatIsGoneAfterAllIsRefusedToo) {
  const auto device = open();
  fake->fail_symbol = symbol("allocate_async");
  fake->fail_code = 2;
  const Error e = refused([&] { device->allocate(100); });
  EXPECT_TRUE(contains(e, "are free")) << e.what();
  EXPECT_EQ(fake->count(symbol("pool_trim")), 1) << "the pool's spare memory was not tried";
}

TEST_P(GpuTest, WithoutAPoolOrPageLocksItWorksAndSaysSo) {
  fake->pools = fake->page_locks = false;
  const auto device = open();
  EXPECT_NE(device->describe().find("no memory pool, no page-locked memory"), std::string::npos) << device->describe();
  const Numbers a(*device, std::vector<float>(3000000, 2));
  EXPECT_EQ(a.get(), std::vector<float>(3000000, 2));
  EXPECT_EQ(fake->count(symbol("allocate_async")), 0);
  EXPECT_GT(fake->count(symbol("allocate")), 0);
}

TEST_P(GpuTest, WhatTheDriverLacksIsSaid) {
  EXPECT_TRUE(contains(refused([&] { open(1); }), "has 1 GPU"));
  fake->devices = 2;
  EXPECT_NE(open(1)->describe().find("Stand-in B"), std::string::npos);
  fake->version = GetParam() == GpuVendor::cuda ? 11040 : 50600000;
  const Error old = refused([&] { open(); });
  EXPECT_TRUE(contains(old, "too old")) << old.what();
  EXPECT_TRUE(contains(old, "newer")) << old.hint();
  fake->devices = 0;
  const Error none = refused([&] { open(); });
  EXPECT_TRUE(contains(none, "NO_DEVICE") || contains(none, "NoDevice")) << none.what();
  EXPECT_TRUE(contains(none, "VISIBLE_DEVICES")) << none.hint();
}

TEST_P(GpuTest, GpusWithoutARowAreRefused) {
  fake->major = 3;
  fake->architecture = "gfx803";
  const Error e = refused([&] { open_gpu(GetParam(), 0); });
  EXPECT_TRUE(contains(e, "Stand-in A")) << e.what();
  EXPECT_TRUE(contains(e, GetParam() == GpuVendor::cuda ? "sm_30" : "gfx803")) << e.what();
}

// Lanes know their numbers from the machine's wave.
TEST_P(GpuTest, AnotherWaveThanTheRowsIsRefused) {
  const machine::MachineRef row = machine::find_machine(GetParam() == GpuVendor::cuda ? "sm_90a" : "gfx90a");
  EXPECT_NE(open_gpu(GetParam(), 0, row)->describe().find(row->name), std::string::npos);
  fake->wave = row->wave / 2;
  const Error e = refused([&] { open_gpu(GetParam(), 0, row); });
  EXPECT_TRUE(contains(
      e, fmt::format("{} lanes step together, and code for {} is made for {}", row->wave / 2, row->name, row->wave)))
      << e.what();
  EXPECT_TRUE(contains(e, "--machine")) << e.hint();
}

// Of memory that is the system's no more is free than the system has left, whatever the driver says.
TEST_P(GpuTest, MemoryOfTheProcessorIsCountedWithTheProcessors) {
  fake->integrated = true;
  const auto device = open();
  EXPECT_NE(device->describe().find("memory shared with the processor"), std::string::npos) << device->describe();
  EXPECT_EQ(device->memory().total, int64_t{1} << 30);
  ::setenv("LUMEN_MEMORY", std::to_string(own_memory() + (int64_t{200} << 20)).c_str(), 1);
  EXPECT_LE(device->memory().free, int64_t{200} << 20);
  const Error e = refused([&] { device->allocate(int64_t{500} << 20); });
  EXPECT_TRUE(contains(e, "shares them with the processor")) << e.what();
  EXPECT_TRUE(contains(e, "on the processor, too")) << e.hint();
  ::unsetenv("LUMEN_MEMORY");
  EXPECT_EQ(device->memory().free, std::min(int64_t{1} << 30, host_room().available));
  // More than the system has: firmware set it apart, and the driver's figure is the one that counts.
  fake->bytes = int64_t{1} << 50;
  ::setenv("LUMEN_MEMORY", "1", 1);
  const auto apart = open();
  EXPECT_NE(apart->describe().find("memory set apart"), std::string::npos) << apart->describe();
  EXPECT_EQ(apart->memory().free, int64_t{1} << 50);
  ::unsetenv("LUMEN_MEMORY");
}

// What a generation's generic code runs on says so; the row is another's in everything else.
TEST_P(GpuTest, GenericCodeIsTakenAndSaid) {
  if (GetParam() == GpuVendor::cuda) GTEST_SKIP() << "there is none for NVIDIA";
  for (const auto& [architecture, row, wave] : {std::tuple{"gfx1103", "gfx11-generic", 32},
                                                {"gfx1033", "gfx10-3-generic", 32},
                                                {"gfx900:xnack-", "gfx9-generic", 64}}) {
    fake->architecture = architecture;
    fake->wave = wave;
    testing::internal::CaptureStderr();
    const auto device = open_gpu(GetParam(), 0);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(device->machine().name, row);
    EXPECT_NE(said.find(fmt::format("generic code ({})", row)), std::string::npos) << said;
    EXPECT_NE(device->describe().find(fmt::format("code for {}", row)), std::string::npos) << device->describe();
    EXPECT_EQ(survey_gpus(GetParam()).gpus.at(0).match.machine->name, row);
  }
}

TEST_P(GpuTest, NoLibraryIsNoCrash) {
  const char* variable = GetParam() == GpuVendor::cuda ? "LUMEN_CUDA_LIBRARY" : "LUMEN_HIP_LIBRARY";
  ::setenv(variable, "/nowhere/libnothing.so", 1);
  const Error e = refused([&] { open(); });
  EXPECT_TRUE(contains(e, "/nowhere/libnothing.so")) << e.what();
  EXPECT_TRUE(contains(e, variable)) << e.hint();
  ::setenv(variable, "libm.so.6", 1);  // some library, not this one
  EXPECT_TRUE(contains(refused([&] { open(); }), symbol("init")));
  const GpuSurvey survey = survey_gpus(GetParam());
  EXPECT_TRUE(survey.gpus.empty());
  EXPECT_NE(survey.refusal.find("too old"), std::string::npos) << survey.refusal;
}

TEST_P(GpuTest, TheSurveyListsWhatIsThere) {
  fake->devices = 3;
  const GpuSurvey survey = survey_gpus(GetParam());
  EXPECT_EQ(survey.refusal, "");
  ASSERT_EQ(survey.gpus.size(), 3U);
  EXPECT_EQ(survey.gpus[2].name, "Stand-in C");
  EXPECT_EQ(survey.gpus[2].ordinal, 2);
  EXPECT_EQ(survey.gpus[2].units, 4);
  EXPECT_EQ(survey.gpus[2].bytes, int64_t{1} << 30);
  EXPECT_NE(survey.library.find("libfake_"), std::string::npos);
  EXPECT_EQ(fake->held(), 0) << "looking takes nothing";
}

TEST_P(GpuTest, CodeThatCannotBeLoadedIsExplained) {
  const auto device = open();
  fake->log = "line 3: the stand-in does not like this";
  const Error e = refused([&] { device->load(device->prepare("syntax error")); });
  if (GetParam() == GpuVendor::cuda) {
    EXPECT_TRUE(contains(e, "line 3: the stand-in does not like this")) << e.what();
    EXPECT_TRUE(contains(e, "INVALID_PTX")) << e.what();
  }
  const auto module = device->load("text");
  const Error missing = refused([&] { module->find("subtract", 0); });
  EXPECT_TRUE(contains(missing, "kernel: subtract")) << missing.what();
  EXPECT_TRUE(contains(missing, GetParam() == GpuVendor::cuda ? "CUDA_ERROR_NOT_FOUND" : "hipErrorNotFound"));
}

TEST_P(GpuTest, TextsBecomeMachineCodeWhereTheDriverDoesThat) {
  const auto device = open();
  const std::string made = device->prepare("text");
  EXPECT_EQ(made, GetParam() == GpuVendor::cuda ? "\x7f"
                                                  "ELF made from text"
                                                : "text");
  EXPECT_EQ(device->prepare(made), made) << "machine code passes";
}

TEST_P(GpuTest, LargeSharedMemoryIsAskedFor) {
  const auto device = open();
  const auto module = device->load("text");
  module->find("add", 1000);
  EXPECT_EQ(fake->count("cuFuncSetAttribute"), 0);
  module->find("add", 100000);
  EXPECT_EQ(fake->count("cuFuncSetAttribute"), GetParam() == GpuVendor::cuda ? 1 : 0);
}

// A kernel that leaves its memory: the error comes when somebody waits, and stays.
TEST_P(GpuTest, AFailedKernelEndsTheRunWithItsName) {
  const auto device = open();
  const auto module = device->load("text");
  void* kernel = module->find("add", 0);
  const Numbers a(*device, {1});
  void* buffers[] = {a.at, static_cast<char*>(a.at) + (1 << 20), a.at};
  device->launch(kernel, buffers, {1, false, 1, 1, 0}, static_cast<LaunchStatus*>(a.at));
  const Error e = refused([&] { device->synchronize(); });
  EXPECT_TRUE(contains(e, symbol("stream_synchronize"))) << e.what();
  EXPECT_TRUE(contains(e, GetParam() == GpuVendor::cuda ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "hipErrorIllegalAddress"));
  refused([&] { a.get(); });
  // A dead context frees its memory itself.
  fake->device_blocks = fake->events = fake->host_blocks = fake->streams = fake->modules = 0;
}

// Whichever call fails, there is an Error with the driver's name for it, no crash and no leak.
TEST_P(GpuTest, AnyCallMayFail) {
  const auto everything = [&] {
    const auto device = open();
    const auto module = device->load(device->prepare("text"));
    void* kernel = module->find("add", 100000);
    const Numbers a(*device, std::vector<float>(2000000, 1)), b(*device, std::vector<float>(2000000, 1));
    auto* status = static_cast<LaunchStatus*>(device->allocate(sizeof(LaunchStatus)));
    const auto give_back = [&](LaunchStatus* s) { device->release(s); };
    const std::unique_ptr<LaunchStatus, decltype(give_back)> keep(status, give_back);
    void* buffers[] = {a.at, b.at, a.at};
    device->begin_recording();
    try {
      device->launch(kernel, buffers, {2, false, 2, 1, 0}, status);
    } catch (const Error&) {
    }
    if (const auto recording = device->end_recording()) device->replay(*recording);
    const auto marks = device->make_marks(2);
    marks->set(0);
    marks->set(1);
    marks->seconds(0, 1);
    device->synchronize();
    a.get();
    return device->memory().free;
  };
  everything();
  const auto calls = static_cast<int64_t>(fake->calls.size());
  ASSERT_GT(calls, 60);
  int failures = 0;
  for (int64_t i = 1; i <= calls; ++i) {
    fake->calls.clear();
    fake->fail_at = i;
    testing::internal::CaptureStderr();
    try {
      everything();
    } catch (const Error& e) {
      ++failures;
      EXPECT_EQ(e.code(), Exit::hardware) << i << ": " << e.what();
      EXPECT_FALSE(e.hint().empty()) << i << ": " << e.what();
    }
    testing::internal::GetCapturedStderr();
    // What failed to be given back is not ours to answer for.
    if (static_cast<int64_t>(fake->calls.size()) >= i) {
      const std::string failed = fake->calls[static_cast<size_t>(i - 1)];
      const bool gives_back = failed.find("Free") != std::string::npos || failed.find("Destroy") != std::string::npos ||
                              failed.find("Release") != std::string::npos ||
                              failed.find("Unload") != std::string::npos || failed == symbol("context_set") ||
                              failed == symbol("device_set");
      EXPECT_LE(fake->held(), gives_back ? 1 : 0) << i << ": " << failed;
    }
    fake->contexts = fake->streams = fake->events = fake->modules = fake->graphs = fake->executables = 0;
    fake->links_open = fake->host_blocks = fake->device_blocks = 0;
  }
  EXPECT_GT(failures, 30);
}

INSTANTIATE_TEST_SUITE_P(Vendors, GpuTest, testing::Values(GpuVendor::cuda, GpuVendor::hip),
                         [](const auto& instance) { return std::string(vendor_name(instance.param)); });

}  // namespace
}  // namespace lumen::run

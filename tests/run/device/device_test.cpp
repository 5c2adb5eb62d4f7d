// Needs: cpu. Devices: memory, the split of tasks over threads, and which failure is reported.
#include "run/device/device.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "run/device/memory.h"

namespace lumen::run {
namespace {

// Adds 1 to each task's cell; tasks from 100 on fail with their number.
void count_tasks(void* const* buffers, int64_t begin, int64_t end, int64_t* status) {
  auto* cells = static_cast<int64_t*>(buffers[0]);
  for (int64_t i = begin; i < end; ++i) {
    ++cells[i];
    if (i >= 100 && status[0] == 0) {
      status[0] = 1;
      status[1] = i;
    }
  }
}

void* kernel() {
  return reinterpret_cast<void*>(&count_tasks);
}

TEST(CpuDevice, EveryTaskRunsOnceAndTheFirstFailureWins) {
  for (const int threads : {1, 2, 3, 8})
    for (const int64_t tasks : {0, 1, 2, 7, 64, 101, 1000}) {
      const auto device = open_cpu(machine::native_machine(), threads);
      std::vector<int64_t> cells(1000);
      void* buffers[] = {cells.data()};
      LaunchStatus status;
      device->launch(kernel(), buffers, {tasks}, &status);
      for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(cells[static_cast<size_t>(i)], i < tasks) << threads << " " << tasks;
      EXPECT_EQ(status.code, tasks > 100 ? 1 : 0);
      EXPECT_EQ(status.detail, tasks > 100 ? 100 : 0);
    }
}

// The smallest normal number times a half, which is zero where subnormal numbers are flushed.
void halve_smallest(void* const* buffers, int64_t begin, int64_t end, int64_t*) {
  auto* cells = static_cast<float*>(buffers[0]);
  for (int64_t i = begin; i < end; ++i) {
    volatile float smallest = 0x1p-126f;
    cells[i] = smallest * 0.5f;
  }
}

TEST(CpuDevice, SubnormalNumbersAreFlushedWhereAskedFor) {
  const auto device = open_cpu(machine::native_machine(), 3);
  for (const bool flushes : {false, true, false}) {
    device->flush_subnormals(flushes);
    for (const int64_t tasks : {1, 64}) {
      std::vector<float> cells(64, 1.0f);
      void* buffers[] = {cells.data()};
      LaunchStatus status;
      device->launch(reinterpret_cast<void*>(&halve_smallest), buffers, {tasks}, &status);
      for (int64_t i = 0; i < tasks; ++i) EXPECT_EQ(cells[static_cast<size_t>(i)] == 0.0f, flushes);
    }
    volatile float smallest = 0x1p-126f;
    EXPECT_NE(smallest * 0.5f, 0.0f) << "this thread's own arithmetic stays";
  }
}

// Many short launches with long and short gaps: workers asleep, awake and late.
TEST(CpuDevice, ManyLaunchesLoseNoTask) {
  const auto device = open_cpu(machine::native_machine(), 4);
  std::vector<int64_t> cells(100);
  void* buffers[] = {cells.data()};
  LaunchStatus status;
  for (int i = 0; i < 3000; ++i) {
    device->launch(kernel(), buffers, {1 + i % 100}, &status);
    if (i % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (int64_t i = 0; i < 100; ++i) ASSERT_EQ(cells[static_cast<size_t>(i)], 30 * (100 - i));
  EXPECT_EQ(status.code, 0);
}

TEST(CpuDevice, SeveralCallersAtOnce) {
  const auto device = open_cpu(machine::native_machine(), 3);
  std::vector<std::vector<int64_t>> cells(3, std::vector<int64_t>(100));
  std::vector<std::thread> callers;
  for (auto& mine : cells)
    callers.emplace_back([&device, &mine] {
      void* buffers[] = {mine.data()};
      LaunchStatus status;
      for (int i = 0; i < 500; ++i) device->launch(kernel(), buffers, {100}, &status);
    });
  for (std::thread& t : callers) t.join();
  for (const auto& mine : cells) EXPECT_EQ(mine, std::vector<int64_t>(100, 500));
}

TEST(CpuDevice, AnEarlierFailureIsKept) {
  const auto device = open_cpu(machine::native_machine(), 2);
  std::vector<int64_t> cells(200);
  void* buffers[] = {cells.data()};
  LaunchStatus status{3, 7};
  device->launch(kernel(), buffers, {200, true}, &status);
  EXPECT_EQ(status.code, 3);
  EXPECT_EQ(status.detail, 7);
}

TEST(CpuDevice, MemoryIsAlignedAndZero) {
  const auto device = open_cpu(machine::native_machine(), 1);
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{100}, int64_t{3} << 20}) {
    auto* memory = static_cast<uint8_t*>(device->allocate(bytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0U);
    for (int64_t i = 0; i < bytes; i += 97) ASSERT_EQ(memory[i], 0);
    if (bytes > 0) {
      device->copy_in(memory, "x", 1);
      char back = 0;
      device->copy_out(&back, memory, 1);
      EXPECT_EQ(back, 'x');
    }
    device->release(memory);
  }
}

// Small pages come one by one, whatever the system gives those who do not refuse huge ones.
TEST(CpuDevice, MemoryThatIsTouchedHereAndThereStaysSmall) {
  constexpr int64_t kBytes = int64_t{64} << 20, kApart = int64_t{1} << 20;
  const auto device = open_cpu(machine::native_machine(), 1);
  auto* memory = static_cast<char*>(device->allocate(kBytes, Pages::small));
  for (int64_t at = 0; at < kBytes; at += kApart) memory[at] = 1;
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  std::vector<unsigned char> resident(kBytes / page);
  ASSERT_EQ(::mincore(memory, kBytes, resident.data()), 0);
  EXPECT_LE(std::count_if(resident.begin(), resident.end(), [](unsigned char x) { return (x & 1) != 0; }),
            2 * kBytes / kApart);
  device->release(memory);
}

TEST(CpuDevice, RefusesWhatDoesNotFit) {
  const auto device = open_cpu(machine::native_machine(), 1);
  try {
    device->allocate(int64_t{1} << 50);
    FAIL() << "a petabyte was granted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::hardware);
    EXPECT_NE(std::string(e.what()).find("1.00 PiB of memory are needed"), std::string::npos) << e.what();
    EXPECT_FALSE(e.hint().empty());
  }
  EXPECT_GT(available_memory(), 0);
}

TEST(CpuDevice, RefusesForeignMachinesAndOddThreadCounts) {
  for (const machine::MachineRef& m : machine::all_machines())
    if (!machine::runs_here(*m)) {
      EXPECT_THROW(open_cpu(m, 1), Error) << m->name;
    }
  EXPECT_THROW(open_cpu(machine::native_machine(), -1), Error);
  EXPECT_THROW(open_cpu(machine::native_machine(), 100000), Error);
}

// The variable is read once in a process, so a process of its own is started with it.
TEST(CpuDevice, TakesTheThreadsOfTheEnvironment) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const char* const set = std::getenv("OMP_NUM_THREADS");
  const std::string before = set ? set : "";
  setenv("OMP_NUM_THREADS", "3", 1);
  EXPECT_EXIT(
      {
        const std::string told = open_cpu(machine::native_machine(), 0)->describe();
        std::fprintf(stderr, "%s\n", told.c_str());
        std::_Exit(0);
      },
      testing::ExitedWithCode(0), "with 3 threads");
  if (set)
    setenv("OMP_NUM_THREADS", before.c_str(), 1);
  else
    unsetenv("OMP_NUM_THREADS");
}

TEST(NullDevice, AcceptsEverythingAndComputesNothing) {
  const auto device = open_null();
  std::vector<int64_t> cells(8);
  void* buffers[] = {cells.data()};
  LaunchStatus status;
  device->launch(kernel(), buffers, {8}, &status);
  EXPECT_EQ(cells, std::vector<int64_t>(8));
  void* memory = device->allocate(64);
  device->release(memory);
  device->synchronize();
}

}  // namespace
}  // namespace lumen::run

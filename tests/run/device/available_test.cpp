// needs: none. What is left of memory by the system's files, control groups of both versions and limits; and refusals.
#include "run/device/available.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "run/device/require.h"

namespace lumen::run {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kGiB = int64_t{1} << 30;

// A system's own files below a folder.
class FakeSystem {
 public:
  FakeSystem() : root_(fs::path(testing::TempDir()) / ("lumen-available-" + std::to_string(::getpid()))) {
    fs::remove_all(root_);
    put("proc/meminfo", "MemTotal: 67108864 kB\nMemFree: 1 kB\nMemAvailable: 33554432 kB\n");
  }
  ~FakeSystem() { fs::remove_all(root_); }
  void put(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  HostRoom room() const { return host_room(root_); }

 private:
  fs::path root_;
};

TEST(Available, TheMachine) {
  const FakeSystem system;
  EXPECT_EQ(system.room().total, 64 * kGiB);
  EXPECT_EQ(system.room().available, 32 * kGiB);
  EXPECT_EQ(system.room().limit, "");
}

TEST(Available, ControlGroupsOfTheSecondVersion) {
  const FakeSystem system;
  system.put("proc/self/cgroup", "0::/user.slice/session.scope\n");
  const std::string outer = "sys/fs/cgroup/user.slice/", inner = outer + "session.scope/";
  system.put(inner + "memory.max", "max\n");
  system.put(inner + "memory.current", "1073741824\n");
  system.put(outer + "memory.max", "8589934592\n");
  system.put(outer + "memory.current", "6442450944\n");
  EXPECT_EQ(system.room().available, 2 * kGiB);
  EXPECT_EQ(system.room().total, 8 * kGiB);
  EXPECT_EQ(system.room().limit, "its control group");
  // Cached pages of files are no loss, those of memory that is called a file are.
  system.put(outer + "memory.stat", "anon 1\nfile 3221225472\nshmem 1073741824\n");
  EXPECT_EQ(system.room().available, 4 * kGiB);
  // Where groups begin to be throttled counts as their limit.
  system.put(inner + "memory.high", "1610612736\n");
  EXPECT_EQ(system.room().available, kGiB / 2);
}

TEST(Available, ControlGroupsOfTheFirstVersion) {
  const FakeSystem system;
  system.put("proc/self/cgroup", "5:cpu,cpuacct:/\n4:memory:/box\n");
  system.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  system.put("sys/fs/cgroup/memory/memory.usage_in_bytes", "9000000000\n");
  EXPECT_EQ(system.room().available, 32 * kGiB);
  system.put("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "4294967296\n");
  system.put("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "3221225472\n");
  system.put("sys/fs/cgroup/memory/box/memory.stat", "total_cache 1073741824\ntotal_shmem 0\n");
  EXPECT_EQ(system.room().available, 2 * kGiB);
  EXPECT_EQ(system.room().total, 4 * kGiB);
}

TEST(Available, BrokenFilesSayNothing) {
  const FakeSystem system;
  system.put("proc/self/cgroup", "\n:\n0:\n0::\n0::/../../etc\n4:memory:/a/b/c\n");
  system.put("sys/fs/cgroup/memory.max", "lots\n");
  system.put("sys/fs/cgroup/memory.current", "-5\n");
  EXPECT_EQ(system.room().available, 32 * kGiB);
}

TEST(Available, WhatTheUserAllows) {
  ASSERT_EQ(::setenv("LUMEN_MEMORY", "1G", 1), 0);
  const HostRoom room = host_room();
  EXPECT_LE(room.total, kGiB);
  EXPECT_LE(room.available, kGiB);
  ::setenv("LUMEN_MEMORY", "a lot", 1);
  EXPECT_THROW(host_room(), Error);
  ::unsetenv("LUMEN_MEMORY");
  EXPECT_EQ(parse_amount("1.5k", "x"), 1536);
  EXPECT_EQ(parse_amount("2TiB", "x"), int64_t{2} << 40);
  EXPECT_EQ(parse_amount("77", "x"), 77);
  for (const char* bad : {"", "G", "-1", "1X", "1GG", "nan", "1e300", "9999999999T"})
    EXPECT_THROW(parse_amount(bad, "x"), Error) << bad;
}

TEST(Require, RefusesWithATable) {
  ::setenv("LUMEN_MEMORY", "3G", 1);
  require_host_memory("a thing", {{"weights", 2 * kGiB, true}, {"values", kGiB / 2}});
  const auto refusal = [](const MemoryNeeds& needs) {
    try {
      require_host_memory("a thing", needs);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::hardware);
      EXPECT_FALSE(e.hint().empty());
      return std::string(e.what());
    }
    return std::string();
  };
  // More than is available, and more than there is with what lies there already.
  const std::string text = refusal({{"weights", 2 * kGiB}, {"values", 2 * kGiB}});
  for (const char* part : {"a thing needs at least 4.00 GiB", "LUMEN_MEMORY", "weights", "values", "together"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  EXPECT_NE(refusal({{"weights", 3 * kGiB, true}, {"values", kGiB}}), "");
  EXPECT_NE(refusal({{"weights", INT64_MAX}, {"values", INT64_MAX}}), "");
  ::unsetenv("LUMEN_MEMORY");
  EXPECT_EQ(saturating_sum(INT64_MAX, 1), INT64_MAX);
  EXPECT_EQ(saturating_product(INT64_MAX / 2, 3), INT64_MAX);
  EXPECT_EQ(saturating_product(5, 3), 15);
}

}  // namespace
}  // namespace lumen::run

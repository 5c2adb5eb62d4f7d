// See memory.h. Blocks come from the system directly: its pages are zero until touched, and a released block is gone at
// once. Proved by tests/run/device_test.cpp.
#include "run/device/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/error.h"

namespace lumen::run {
namespace {

constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();
constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kAlwaysFits = int64_t{16} << 20;  // below this the check would cost more than it saves

// The number behind `name`, "MemAvailable:" for instance, in bytes.
int64_t system_memory(std::string_view name) {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;) {
    int64_t kilobytes = 0;
    if (word == name && file >> kilobytes) return kilobytes * 1024;
  }
  return kUnknown;
}

int64_t read_number(const char* path) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? number : -1;
}

// Limit minus use of the control group; files the group has cached can be dropped and do not count.
int64_t group_available() {
  const int64_t limit = read_number("/sys/fs/cgroup/memory.max");
  const int64_t used = read_number("/sys/fs/cgroup/memory.current");
  if (limit < 0 || used < 0) return kUnknown;
  int64_t cached = 0;
  std::ifstream file("/sys/fs/cgroup/memory.stat");
  std::string name;
  for (int64_t value = 0; file >> name >> value;)
    if (name == "file") cached = value;
  return std::max<int64_t>(0, limit - used + cached);
}

std::string amount(int64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
}

}  // namespace

int64_t available_memory() {
  return std::min(system_memory("MemAvailable:"), group_available());
}

int64_t total_memory() {
  const int64_t limit = read_number("/sys/fs/cgroup/memory.max");
  return std::min(system_memory("MemTotal:"), limit < 0 ? kUnknown : limit);
}

void* HostMemory::allocate(int64_t bytes) {
  LUMEN_CHECK(bytes >= 0, "{} bytes", bytes);
  const int64_t size = std::max<int64_t>(bytes, 64);
  if (size > kAlwaysFits) {
    const int64_t available = available_memory();
    if (size > available)
      throw Error(Exit::hardware,
                  fmt::format("{} of memory are needed at once and {} are available", amount(size), amount(available)),
                  "choose a smaller batch, context or format, or a machine with more memory");
  }
  void* memory = ::mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw Error(Exit::hardware, fmt::format("the system refuses {} of memory", amount(size)),
                "choose a smaller batch, context or format, or a machine with more memory");
  if (size >= kHugePage) ::madvise(memory, static_cast<size_t>(size), MADV_HUGEPAGE);
  const std::scoped_lock lock(mutex_);
  blocks_[memory] = size;
  held_ += size;
  peak_ = std::max(peak_, held_);
  return memory;
}

void HostMemory::release(void* memory) {
  if (!memory) return;
  const std::scoped_lock lock(mutex_);
  const auto block = blocks_.find(memory);
  LUMEN_CHECK(block != blocks_.end(), "released memory that was not allocated here");
  ::munmap(memory, static_cast<size_t>(block->second));
  held_ -= block->second;
  blocks_.erase(block);
}

int64_t HostMemory::held() const {
  const std::scoped_lock lock(mutex_);
  return held_;
}

int64_t HostMemory::peak() const {
  const std::scoped_lock lock(mutex_);
  return peak_;
}

HostMemory::~HostMemory() {
  for (const auto& [memory, size] : blocks_) ::munmap(memory, static_cast<size_t>(size));
}

}  // namespace lumen::run

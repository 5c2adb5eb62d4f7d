// See memory.h. Blocks come directly from the kernel: pages are zero until touched, and a released block is returned at
// once. Proved by tests/run/device/device_test.cpp.
#include "run/device/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/printable.h"
#include "run/device/available.h"

namespace lumen::run {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

}  // namespace

int64_t available_memory() {
  return host_room().available;
}

int64_t total_memory() {
  return host_room().total;
}

void* HostMemory::allocate(int64_t bytes, Pages pages) {
  LUMEN_CHECK(bytes >= 0, "{} bytes", bytes);
  const int64_t size = std::max<int64_t>(bytes, 64);
  if (size > kAlwaysFits) {
    // Untouched pages still count as available, although they are already allocated.
    const int64_t promised = std::max<int64_t>(0, held() - own_memory());
    const int64_t available = std::max<int64_t>(0, available_memory() - promised);
    if (size > available)
      throw Error(
          Exit::hardware,
          fmt::format("{} of memory are needed at once and {} are available", size_text(size), size_text(available)),
          "choose a smaller batch, context or format, or a machine with more memory");
  }
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw Error(Exit::hardware, fmt::format("the system refuses {} of memory", size_text(size)),
                "choose a smaller batch, context or format, or a machine with more memory");
  // Both cases are explicit: the system's default may be huge pages for all memory.
  if (size >= kHugePage) ::madvise(memory, size, pages == Pages::huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
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
  ::munmap(memory, block->second);
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
  for (const auto& [memory, size] : blocks_) ::munmap(memory, size);
}

}  // namespace lumen::run

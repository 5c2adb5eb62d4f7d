#include "run/device/gpu/gpu_memory.h"

#include <algorithm>

#include "base/check.h"
#include "base/printable.h"
#include "base/round_up.h"
#include "run/device/available.h"

namespace lumen::run {
namespace {

// Attributes of a memory pool; both interfaces use the same numbers.
constexpr int kReleaseThreshold = 4, kReserved = 5, kUsed = 7;
constexpr int64_t kAlignment = 256;
constexpr int64_t kAlwaysFits = int64_t{1} << 20;  // below this size the check costs more than it saves

}  // namespace

GpuMemory::GpuMemory(GpuContextRef context, bool in_host_memory)
    : context_(std::move(context)), in_host_memory_(in_host_memory) {
  const GpuSymbols& gpu = context_->symbols();
  int pools = 0;
  const bool complete = gpu.allocate_async && gpu.release_async && gpu.pool_get && gpu.pool_set_attribute &&
                        gpu.pool_attribute && gpu.pool_trim;
  if (!complete || gpu.device_attribute(&pools, gpu.numbers.attribute_pools, context_->device()) != 0 || pools == 0)
    return;
  if (gpu.pool_get(&pool_, context_->device()) != 0) pool_ = nullptr;
  // Released memory stays in this process's pool for the next program.
  uint64_t keep = ~uint64_t{0};
  if (pool_ && gpu.pool_set_attribute(pool_, kReleaseThreshold, &keep) != 0) pool_ = nullptr;
}

GpuMemory::~GpuMemory() {
  try {
    context_->use();
  } catch (const Error&) {
    return;  // the driver has destroyed the context, and its memory with it
  }
  for (const auto& [memory, block] : blocks_) give_back(memory, block.from_pool);
  if (pool_) {
    context_->symbols().stream_synchronize(context_->stream());
    context_->symbols().pool_trim(pool_, 0);
  }
}

DeviceMemory GpuMemory::state() const {
  const GpuSymbols& gpu = context_->symbols();
  context_->use();
  size_t free = 0, total = 0;
  context_->check(gpu.memory_info(&free, &total), "memory_info");
  if (in_host_memory_) free = std::min<size_t>(free, host_room().available);
  uint64_t reserved = 0, used = 0;
  if (pool_ && gpu.pool_attribute(pool_, kReserved, &reserved) == 0 && gpu.pool_attribute(pool_, kUsed, &used) == 0)
    free += std::max(reserved, used) - used;
  return {static_cast<int64_t>(total), static_cast<int64_t>(std::min(free, total)), held_, peak_};
}

Error GpuMemory::refusal(int64_t bytes) const {
  const DeviceMemory now = state();
  return {Exit::hardware,
          fmt::format("{}: {} of memory are needed at once and {} of {} are free{}", context_->title(),
                      size_text(bytes), size_text(now.free), size_text(now.total),
                      in_host_memory_ ? "; the GPU shares them with the processor" : ""),
          in_host_memory_ ? "choose a smaller batch, context or format, or end other programs: on the processor, too"
                          : "choose a smaller batch, context or format, end other programs on this GPU, or use "
                            "--device cpu"};
}

int GpuMemory::take(void** memory, int64_t bytes) {
  const GpuSymbols& gpu = context_->symbols();
  const size_t size = bytes;
  return pool_ ? gpu.allocate_async(memory, size, context_->stream()) : gpu.allocate(memory, size);
}

void* GpuMemory::allocate(int64_t bytes) {
  LUMEN_CHECK(bytes >= 0, "{} bytes", bytes);
  const GpuSymbols& gpu = context_->symbols();
  if (bytes > (int64_t{1} << 60)) throw refusal(bytes);
  const int64_t size = round_up(std::max<int64_t>(bytes, 1), kAlignment);
  context_->use();
  const std::scoped_lock lock(mutex_);
  if (size > kAlwaysFits && size > state().free) throw refusal(size);
  void* memory = nullptr;
  int error = take(&memory, size);
  if (error == kGpuNotSupported && pool_) {
    pool_ = nullptr;  // the attribute was wrong
    error = take(&memory, size);
  }
  if (error == kGpuOutOfMemory && pool_) {
    // Memory is fragmented, or the pool holds blocks of other sizes: return the pool's unused memory, once.
    context_->synchronize();
    gpu.pool_trim(pool_, 0);
    error = take(&memory, size);
  }
  if (error == kGpuOutOfMemory) throw refusal(size);
  context_->check(error, pool_ ? "allocate_async" : "allocate");
  error = gpu.fill(memory, 0, static_cast<size_t>(size), context_->stream());
  if (error != 0) {
    give_back(memory, pool_ != nullptr);
    throw context_->failure(error, "fill");
  }
  blocks_[memory] = {size, pool_ != nullptr};
  held_ += size;
  if (held_ > peak_) peak_ = held_.load();
  return memory;
}

void GpuMemory::give_back(void* memory, bool from_pool) const {
  const GpuSymbols& gpu = context_->symbols();
  // After a failed kernel every call fails; the context frees its memory.
  if (from_pool) {
    gpu.release_async(memory, context_->stream());
  } else {
    gpu.release(memory);
  }
}

void GpuMemory::release(void* memory) {
  if (!memory) return;
  const std::scoped_lock lock(mutex_);
  const auto block = blocks_.find(memory);
  LUMEN_CHECK(block != blocks_.end(), "released memory that was not allocated here");
  try {
    context_->use();
    give_back(memory, block->second.from_pool);
  } catch (const Error&) {
  }
  held_ -= block->second.bytes;
  blocks_.erase(block);
}

}  // namespace lumen::run

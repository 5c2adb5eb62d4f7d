#include "model/arch/bytes.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/error.h"
#include "run/device/memory.h"
#include "run/device/require.h"

namespace lumen::model::arch {
namespace {

constexpr size_t kPages = size_t{1} << 20;  // from this size on, allocated by mmap: returned to the system when freed

}  // namespace

Room::Room(size_t size, const std::string& what) : size_(size) {
  if (static_cast<int64_t>(size) > run::kAlwaysFits)
    run::require_host_memory(what, {{"its bytes", static_cast<int64_t>(size)}});
  if (size < kPages) {
    const size_t whole = (std::max<size_t>(size, 1) + Bytes::kAlignment - 1) / Bytes::kAlignment * Bytes::kAlignment;
    void* const memory = std::aligned_alloc(Bytes::kAlignment, whole);
    if (!memory) throw std::bad_alloc();
    std::memset(memory, 0, whole);
    data_ = static_cast<uint8_t*>(memory);
    keeper_ = std::shared_ptr<const void>(memory, [](void* p) { std::free(p); });
    return;
  }
  void* const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw Error(Exit::hardware, fmt::format("the system refuses {} bytes of memory for {}", size, what),
                "choose a smaller model, or a machine with more memory");
  ::madvise(memory, size, MADV_HUGEPAGE);
  data_ = static_cast<uint8_t*>(memory);
  keeper_ = std::shared_ptr<const void>(memory, [size](void* p) { ::munmap(p, size); });
}

}  // namespace lumen::model::arch

#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <new>

#include "base/error.h"
#include "cli/run_app.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
namespace {
constexpr std::size_t kHugePage = std::size_t{2} << 20;
}

// Buffers of whole weights are allocated and freed often. With 4 KiB pages their page faults take longer than the
// computation, so they are allocated in huge pages. The memory comes from functions that free() accepts, because the
// library's own operator delete calls free().
void* operator new(std::size_t size) {
  for (;;) {
    void* memory = nullptr;
    if (size < 4 * kHugePage || size > SIZE_MAX - kHugePage) {
      memory = std::malloc(size > 0 ? size : 1);
    } else {
      const std::size_t whole = (size + kHugePage - 1) / kHugePage * kHugePage;
      memory = std::aligned_alloc(kHugePage, whole);
      if (memory) ::madvise(memory, whole, MADV_HUGEPAGE);
    }
    if (memory) return memory;
    const std::new_handler handler = std::get_new_handler();
    if (!handler) throw std::bad_alloc();
    handler();
  }
}
#endif

namespace {

// When a program starts with a standard descriptor closed (`2>&-`), the first files that it opens get that number, and
// messages would be written into a model file. So closed standard descriptors are opened on /dev/null first.
void open_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    int opened = ::open("/dev/null", O_RDWR);        // the lowest number that is free: this one
    if (opened < 0) opened = ::open("/", O_RDONLY);  // a system without /dev: reads and writes fail
    if (opened != fd) ::_exit(lumen::exit_code(lumen::Exit::user));
  }
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_descriptors();  // before anything is opened
  // Large blocks are mapped one by one, so that freeing a tensor returns its memory to the system. The threshold
  // includes tensors of half a megabyte, because on the heap they leave gaps that add up over a model's layers.
  mallopt(M_MMAP_THRESHOLD, 1 << 18);
  return lumen::cli::run_app(argc, argv);
}

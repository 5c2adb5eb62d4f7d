#include "emit/scratch.h"

#include <llvm/Support/ErrorHandling.h>

#include <mutex>
#include <new>

namespace lumen::emit {

void throw_without_memory() {
  static std::once_flag once;
  std::call_once(
      once, [] { llvm::install_bad_alloc_error_handler([](void*, const char*, bool) { throw std::bad_alloc(); }); });
}

}  // namespace lumen::emit

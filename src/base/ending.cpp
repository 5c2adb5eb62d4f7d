#include "base/ending.h"

#include <unistd.h>

#include <atomic>

namespace lumen {
namespace {

std::atomic<bool> ending{false};
static_assert(std::atomic<bool>::is_always_lock_free, "signal handlers set it");

}  // namespace

void begin_ending() noexcept {
  ending = true;
}

void wait_if_ending() noexcept {
  while (ending) ::pause();
}

}  // namespace lumen

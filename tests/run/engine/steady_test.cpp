// Needs: cpu. A program that has run once allocates nothing more.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/run/graphs.h"

namespace {
std::atomic<int64_t> allocations{0};
}

#pragma GCC diagnostic ignored "-Wmismatched-new-delete"  // seen only where the pair below is inlined in part

// Counted for the whole test program; behaves as the library's.
void* operator new(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t) noexcept {
  std::free(p);
}

namespace lumen::run {
namespace {

TEST(Steady, RunningAllocatesNothing) {
  const graph::Graph g = small_network();
  Engine engine(options());
  const auto program = run_once(engine, g, random_inputs(g, 9));
  const int64_t before = allocations.load();
  for (int i = 0; i < 10; ++i) program->run();
  EXPECT_EQ(allocations.load(), before);
}

TEST(Steady, SameInputsSameBits) {
  const graph::Graph g = small_network();
  Engine engine(options());
  const auto program = run_once(engine, g, random_inputs(g, 10));
  const auto first = bytes_of(program->result("norm"));
  for (int i = 0; i < 5; ++i) {
    program->run();
    EXPECT_EQ(bytes_of(program->result("norm")), first);
  }
}

}  // namespace
}  // namespace lumen::run

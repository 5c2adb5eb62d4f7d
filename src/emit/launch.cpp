// How a kernel's iterations become blocks and threads.
#include <algorithm>

#include "base/check.h"
#include "emit/emit.h"
#include "kernel/loop/rules.h"

namespace lumen::emit {
namespace {

constexpr int64_t kMostBlocks = (int64_t{1} << 31) - 1;  // of a launch, along x
constexpr int kThreads = 128;                            // of a block of tasks
constexpr int64_t kFewBlocks = 1024;  // fewer blocks than these are made smaller, so that all of the machine has some

}  // namespace

LaunchShape launch_shape(const loop::Kernel& k, const machine::Machine& target) {
  LUMEN_CHECK(target.kind == machine::Kind::gpu, "{} launches no blocks", target.name);
  LaunchShape shape;
  shape.threads = k.tasks < kThreads * kFewBlocks ? target.wave : kThreads;
  shape.blocks = std::clamp<int64_t>((k.tasks + shape.threads - 1) / shape.threads, 1, kMostBlocks);
  return shape;
}

}  // namespace lumen::emit

#include "emit/lower/launch.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"
#include "kernel/loop/rules.h"
#include "kernel/loop/text.h"

namespace lumen::emit {
namespace {

constexpr int64_t kMostBlocks = (int64_t{1} << 31) - 1;  // per launch, along x
constexpr int kThreads = 128;                            // per block of tasks
constexpr int64_t kFewBlocks = 1024;  // with fewer blocks than this, blocks get smaller, so that more units are used

// Avoids overflow: the result exceeds kMostBlocks if `tasks` does.
int64_t saturating_blocks(int64_t tasks, int instances) {
  return tasks > kMostBlocks ? tasks : tasks * instances;
}

}  // namespace

std::string symbol_name(const loop::Kernel& k) {
  constexpr size_t kLongest = 96;
  std::string name = "lumen_";
  for (const char c : k.name.substr(0, kLongest)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    name += plain ? c : '_';
  }
  return name + "_" + hash_text(loop::print(k)).hex().substr(0, 16);
}

LaunchShape launch_shape(const loop::Kernel& k, const machine::Machine& target) {
  LUMEN_CHECK(target.kind == machine::Kind::gpu, "{} launches no blocks", target.name);
  LaunchShape shape;
  if (const loop::Instr* top = loop::top_loop(k); top && top->kind == loop::LoopKind::grid) {
    shape.blocks = saturating_blocks(k.tasks, k.instances);
    shape.threads = loop::block_lanes(k);
    const int64_t shared = loop::shared_bytes(k);
    if (shape.blocks > kMostBlocks || shared > target.shared_bytes)
      throw Error(Exit::hardware, fmt::format("kernel {}: {} blocks with {} bytes of shared memory each do not fit {}",
                                              k.name, shape.blocks, shared, target.name));
    if (shared > target.static_shared_bytes) shape.shared_bytes = shared;
    return shape;
  }
  shape.threads = k.tasks < kThreads * kFewBlocks ? target.wave : kThreads;
  shape.blocks =
      k.instances * std::clamp<int64_t>((k.tasks + shape.threads - 1) / shape.threads, 1, kMostBlocks / k.instances);
  return shape;
}

}  // namespace lumen::emit

// Scratch of a plan's groups: what a group needs for itself alone lies where the next one's does, and what several
// groups would prepare alike (activations that three products read, quantized) is prepared once and lives from the
// first to the last of them. Proved by tests/run/engine/scratch_test.cpp.
#pragma once

#include "run/engine/compile/repeat.h"

namespace lumen::run {

struct GroupScratch {
  std::vector<int64_t> at;       // by scratch buffer: bytes from where scratch begins
  std::vector<int> preparation;  // by step: the one it is; -1: a step of this group alone
};
struct ScratchPlan {
  std::vector<GroupScratch> groups;  // by group of the plan
  int preparations = 0;              // that several groups share; whoever lists one of them first runs it
  int64_t bytes = 0;
};
// A step prepares when it reads values in memory, or what such steps wrote, and writes scratch that nobody else writes.
// Two are the same when kernel and values are: a value is written once, and an updated state is another value.
ScratchPlan plan_scratch(const graph::Plan& plan, const DistinctKernels& kernels);

}  // namespace lumen::run

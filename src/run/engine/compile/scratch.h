// Scratch memory of a plan's groups: scratch of a single group shares its memory with the next group's; a preparation
// common to several groups (quantized activations that three products read) is computed once, and its live range is
// from the first to the last of them. Proved by tests/run/engine/scratch_test.cpp.
#pragma once

#include "run/engine/compile/repeat.h"

namespace lumen::run {

struct GroupScratch {
  std::vector<int64_t> at;       // by scratch buffer: offset in bytes
  std::vector<int> preparation;  // by step: number of the shared preparation; -1: a step of this group only
};
struct ScratchPlan {
  std::vector<GroupScratch> groups;  // by group of the plan
  int preparations = 0;              // shared by several groups; the first group in the list runs it
  int64_t bytes = 0;
};
// A step is a preparation if it reads values in memory, or results of such steps, and is the only writer of its
// scratch. Two are equal if kernel and values are: a value is written once, and an updated state is another value.
ScratchPlan plan_scratch(const graph::Plan& plan, const DistinctKernels& kernels);

}  // namespace lumen::run

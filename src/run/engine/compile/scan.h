// A scan as a loop over the launches of its body: what a step reads and writes of sequences and carries moves with the
// step, so that no kernel and no launch is there twice. Proved by tests/run/engine/scan_test.cpp.
#pragma once

#include "graph/steps/history.h"
#include "run/engine/compile/groups.h"

namespace lumen::run {

// The body as it is run, as a plan of its own.
graph::Pipeline plan_body(const graph::Plan& plan, const graph::Group& scan, const machine::Machine& machine);

struct ScanKernels {
  const graph::Plan* plan = nullptr;  // that has the scan, and outlives this
  graph::ValueId scan = -1;
  std::vector<graph::ValueId> results;  // values of that plan, by result of the body; -1: nobody reads it
  std::vector<graph::History> histories;
  int64_t steps = 0;
  bool reverse = false;
  graph::Pipeline first_pipeline, body_pipeline;  // `first` leaves the carries where the first step finds them
  Kernels first, body;
  std::vector<int64_t> carry_at;  // by carry: bytes into the scan's memory, of the places that no result is
  int64_t first_at = 0, body_at = 0, first_scratch_at = 0, body_scratch_at = 0;  // likewise
  int64_t bytes = 0;                                                             // of its memory
};

std::shared_ptr<ScanKernels> synthesize_scan(const CompileContext& shop, const graph::Plan& plan,
                                             const graph::Group& group, const CompileOptions& options,
                                             const ValueFacts& facts);

// `places`: of the plan that has the scan, and of the scan's own memory.
void list_scan(const CompileContext& shop, const ScanKernels& scan, const PlanAddresses& places, LaunchList* list);

}  // namespace lumen::run

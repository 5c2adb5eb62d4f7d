// A scan as a loop over the launches of its body: addresses of sequences and carries advance with the step, so that
// kernels and launches exist once. Proved by tests/run/engine/scan_test.cpp and
// tests/run/engine/portable/portable_test.cpp.
#pragma once

#include <functional>
#include <map>

#include "graph/pipeline/pipeline.h"
#include "graph/steps/history.h"
#include "run/engine/compile/repeat.h"
#include "run/engine/program/execute.h"

namespace lumen::run {

// Addresses of a plan's values, and of its scratch.
struct PlanAddresses {
  std::function<BufferAddress(graph::ValueId)> of;
  int64_t scratch_at = 0;  // bytes into the arena
  size_t loops = 0;        // enclosing loops
};

// The body as executed, as a separate plan.
graph::Pipeline plan_body(const graph::Plan& plan, const graph::Group& scan, const machine::Machine& machine);

// A scan before code generation: two plans and the memory between them. The first plan's values are dead when the steps
// start, so the steps' values reuse their memory.
struct ScanPlan {
  const graph::Plan* plan = nullptr;  // contains the scan, and must outlive this
  graph::ValueId scan = -1;
  std::vector<graph::ValueId> results;  // values of that plan, by result of the body; -1: no reader
  std::vector<graph::History> histories;
  int64_t steps = 0;
  bool reverse = false;
  graph::Pipeline first_pipeline, body_pipeline;      // `first` stores the initial carries for the first step
  std::vector<int64_t> carry_at;                      // by carry: offset of its buffers in the scan's memory
  int64_t values_at = 0;                              // the same for the values of both plans
  int64_t first_scratch_at = 0, body_scratch_at = 0;  // after those
};
ScanPlan plan_scan(const graph::Plan& plan, const graph::Group& group, const machine::Machine& machine);

// Facts about the values of each plan, derived from the facts of the surrounding plan.
ValueFacts facts_of_first(const ScanPlan& scan, const ValueFacts& around);
ValueFacts facts_of_body(const ScanPlan& scan, const ValueFacts& around);

// Addresses of the values of both plans.
class BodyAddresses {
 public:
  // `around`: the plan that contains the scan, and the scan's own memory. `constant`: address of a constant of the
  // body.
  BodyAddresses(const ScanPlan& s, const PlanAddresses& around,
                const std::function<BufferAddress(const graph::Node&)>& constant);

  BufferAddress of_first(graph::ValueId v) const;
  BufferAddress of_body(graph::ValueId v) const;

 private:
  BufferAddress own(int64_t at) const { return {BufferAddress::In::arena, around_.scratch_at + at}; }
  BufferAddress turned(BufferAddress at, int64_t bytes, bool alternates) const;
  BufferAddress of_operand(int i) const;
  BufferAddress beginning_of(const graph::History& h) const;
  void place_carry(int c, int64_t bytes);

  const ScanPlan& s_;
  const graph::Graph& g_;
  const graph::Node& node_;
  const PlanAddresses& around_;
  int carries_ = 0, stepped_ = 0;
  std::vector<graph::ValueId> body_inputs_;
  std::vector<BufferAddress> carry_read_, carry_written_, carry_first_;
  std::map<graph::ValueId, BufferAddress> written_, constants_;  // by value of the body
};

}  // namespace lumen::run

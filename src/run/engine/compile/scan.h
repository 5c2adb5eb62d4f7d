// A scan as a loop over the launches of its body: what a step reads and writes of sequences and carries moves with the
// step, so that no kernel and no launch is there twice. Proved by tests/run/engine/scan_test.cpp and
// tests/run/engine/portable/portable_test.cpp.
#pragma once

#include <functional>
#include <map>

#include "graph/pipeline/pipeline.h"
#include "graph/steps/history.h"
#include "run/engine/compile/repeat.h"
#include "run/engine/program/execute.h"

namespace lumen::run {

// Where the values of a plan are, and its scratch.
struct PlanAddresses {
  std::function<BufferAddress(graph::ValueId)> of;
  int64_t scratch_at = 0;  // bytes into the arena
  size_t loops = 0;        // around it
};

// The body as it is run, as a plan of its own.
graph::Pipeline plan_body(const graph::Plan& plan, const graph::Group& scan, const machine::Machine& machine);

// What a scan becomes before there are kernels: two plans and the memory between them. What the first plan computes is
// done with when steps begin, so that their values lie where its values did.
struct ScanPlan {
  const graph::Plan* plan = nullptr;  // that has the scan, and outlives this
  graph::ValueId scan = -1;
  std::vector<graph::ValueId> results;  // values of that plan, by result of the body; -1: nobody reads it
  std::vector<graph::History> histories;
  int64_t steps = 0;
  bool reverse = false;
  graph::Pipeline first_pipeline, body_pipeline;      // `first` leaves the carries where the first step finds them
  std::vector<int64_t> carry_at;                      // by carry: bytes into the scan's memory, of its places there
  int64_t values_at = 0;                              // likewise, of both plans' values
  int64_t first_scratch_at = 0, body_scratch_at = 0;  // behind those
};
ScanPlan plan_scan(const graph::Plan& plan, const graph::Group& group, const machine::Machine& machine);

// What kernels of either plan may know of its values, given what is known of those around the scan.
ValueFacts facts_of_first(const ScanPlan& scan, const ValueFacts& around);
ValueFacts facts_of_body(const ScanPlan& scan, const ValueFacts& around);

// Where values of both plans are.
class BodyAddresses {
 public:
  // `around`: of the plan that has the scan, and of the scan's own memory. `constant`: where a constant of the body is.
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

// Steps of a synthesis as launches: machine code, scratch, addresses. Proved by tests/run/engine/compile_test.cpp.
#pragma once

#include <functional>
#include <span>

#include "run/engine/compile/compile.h"
#include "run/engine/compile/repeat.h"

namespace lumen::run {

// Machine code of every step: from memory, from disk, or compiled.
std::vector<void*> find_functions(const CompileContext& context, const Synthesized& s, CompileReport* report);

// A group and the addresses for its steps.
struct ListedGroup {
  std::function<BufferAddress(int)> value;  // address of an argument of the group
  std::vector<BufferAddress> scratch;       // addresses of its scratch buffers
  std::vector<bool> is_done;                // by step: skipped, because another group has prepared the same
  graph::ValueId subject = -1;              // the node that the group computes
};
// The machine code of a step.
struct StepCode {
  void* alone = nullptr;
  void* at_once = nullptr;  // for all groups listed together; null: `alone` runs once per group
};
// Appends the steps of one group, or of several that run concurrently.
void list_steps(const CompileContext& context, const synth::Synthesis& s, const std::vector<StepCode>& code,
                const std::vector<ListedGroup>& groups, std::vector<Launch>* out);
// The plan's text for the user.
std::string plan_at_once(const std::string& plan, int instances);
loop::Kernel with_instances(loop::Kernel kernel, int instances);

}  // namespace lumen::run

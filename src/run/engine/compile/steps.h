// Steps of a synthesis as launches: their machine code, their scratch, their addresses. Proved by
// tests/run/engine/compile_test.cpp.
#pragma once

#include <functional>
#include <span>

#include "run/engine/compile/compile.h"
#include "run/engine/compile/repeat.h"

namespace lumen::run {

// Machine code of every step: from memory, from disk, or compiled.
std::vector<void*> find_functions(const CompileContext& context, const synth::Synthesis& s, CompileReport* report);

// A group whose steps are listed.
struct ListedGroup {
  std::function<BufferAddress(int)> value;  // where an argument of the group is
  std::vector<BufferAddress> scratch;       // where its scratch buffers are
  std::vector<bool> is_done;                // by step: left out, because another group has prepared the same
  graph::ValueId subject = -1;              // the node that it is about
};
// The machine code of a step.
struct StepCode {
  void* alone = nullptr;
  void* at_once = nullptr;  // for all groups that are listed together; null: they run it one after the other
};
// The steps of groups that run at one time, or of one.
void list_steps(const CompileContext& context, const synth::Synthesis& s, const std::vector<StepCode>& code,
                const std::vector<ListedGroup>& groups, std::vector<Launch>* out);
// A plan as people read it.
std::string plan_at_once(const std::string& plan, int instances);
loop::Kernel with_instances(loop::Kernel kernel, int instances);

}  // namespace lumen::run

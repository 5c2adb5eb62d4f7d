// Decides whether a device's kernels may be used: called before a program is made of them, or before they are launched
// alone. run/engine/verify/launch_trial implements it; this file handles programs with refused kernels,
// run/engine/verify/lone_steps handles other kernels. Proved by tests/run/engine/verify/verify_test.cpp.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "graph/fuse/plan.h"
#include "run/engine/compile/repeat.h"
#include "run/engine/program/program.h"

namespace lumen::run {

struct CompileContext;
struct Kernels;

// Inputs for kernels without a graph, and their correct results, bit for bit.
struct KernelExample {
  std::vector<std::vector<uint8_t>> given;       // by value number, with the sizes that the kernels assume
  std::map<int, std::vector<uint8_t>> expected;  // values that are written
  std::string why_not = {};                      // not empty: the reason why the results are unknown
};

// The kernels of one distinct form, ready to launch.
struct LoadedForm {
  const graph::Plan& plan;
  const graph::Group& group;
  const GroupForm& form;
  const Synthesized& synthesis;
  const std::vector<void*>& functions;  // by step
  const CompileOptions& options;
  const std::function<KernelExample()>* example = nullptr;  // replaces plan and group, which are then empty
};

class KernelJudge {
 public:
  struct Result {
    bool right = true;
    std::string why = {};  // if wrong: the kernel, its inputs and its result
  };
  virtual ~KernelJudge() = default;
  // nullopt: not tried yet.
  virtual std::optional<Result> known(const GroupForm& form, const Synthesized& synthesis,
                                      const CompileOptions& options) = 0;
  virtual Result try_out(const LoadedForm& form) = 0;
  // Reports to the user which kernel replaced which; once, when the program is made.
  virtual void replaced(const std::string& what) = 0;
  virtual void forget_replaced() = 0;
  virtual void say_replaced() = 0;
};

// Collects the machine instructions (rows of its table) in a region, by name.
void add_rows_of(const loop::Region& region, std::set<std::string>* rows);

// The machine instructions that replacements of wrong kernels do without: those that the kernels use, or else all.
struct RowsToAvoid {
  std::set<std::string> used, all;
};
RowsToAvoid rows_to_avoid(const synth::Synthesis& s, const machine::Machine& machine);

// Replaces kernels known to be wrong: by another plan, one without the machine instructions that they use, or plain
// ones. Error (exit 5) if all alternatives are wrong.
void replace_refused(const CompileContext& context, const graph::Plan& plan, const CompileOptions& options,
                     DistinctKernels* kernels);

// Tries kernels that have not been tried, also those of scans. False: some were wrong and must be replaced.
bool are_trusted(const CompileContext& context, const graph::Plan& plan, const CompileOptions& options,
                 const Kernels& made);

}  // namespace lumen::run

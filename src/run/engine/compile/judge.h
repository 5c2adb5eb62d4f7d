// Whether kernels may be trusted on a device: asked before a program is made of them, or before they are launched
// alone. Who answers is run/engine/launch_trial; what becomes of a program whose kernels are refused is said here, of
// others in run/engine/lone_steps. Proved by tests/run/engine/launch_trial/trial_results_test.cpp.
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

// What kernels that no graph describes are given, and what right ones make of it, bit for bit.
struct KernelExample {
  std::vector<std::vector<uint8_t>> given;       // by number of value, as long as kernels take it to be
  std::map<int, std::vector<uint8_t>> expected;  // values that are written
  std::string why_not = {};                      // not empty: nobody can say
};

// The kernels of one distinct form, ready to be launched.
struct LoadedForm {
  const graph::Plan& plan;
  const graph::Group& group;
  const GroupForm& form;
  const synth::Synthesis& synthesis;
  const std::vector<void*>& functions;  // by step
  const CompileOptions& options;
  const std::function<KernelExample()>* example = nullptr;  // instead of plan and group, which are empty
};

class KernelJudge {
 public:
  struct Result {
    bool right = true;
    std::string why = {};  // not: which kernel gave what for what
  };
  virtual ~KernelJudge() = default;
  // Nothing: these have not been tried.
  virtual std::optional<Result> known(const GroupForm& form, const synth::Synthesis& synthesis,
                                      const CompileOptions& options) = 0;
  virtual Result try_out(const LoadedForm& form) = 0;
  // Reports to the user which kernel replaced which; once, when the program is made.
  virtual void replaced(const std::string& what) = 0;
  virtual void forget_replaced() = 0;
  virtual void say_replaced() = 0;
};

// Instructions of the machine's table, by name.
void add_rows_of(const loop::Region& region, std::set<std::string>* rows);

// Kernels that are known to be wrong give way to the next: another plan, one without the machine's instructions that
// they have, plain ones. Error (exit 5) where all that can be made are wrong.
void replace_refused(const CompileContext& context, const graph::Plan& plan, const CompileOptions& options,
                     DistinctKernels* kernels);

// Tries those that nobody has tried, of scans as well. False: some were wrong, and others have to be made.
bool are_trusted(const CompileContext& context, const graph::Plan& plan, const CompileOptions& options,
                 const Kernels& made);

}  // namespace lumen::run

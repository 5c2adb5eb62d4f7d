// Every stage a graph passes on its way to code, as text, for any machine on any machine; and which machines there are.
// What `lumen compile` and `lumen doctor` show. Proved by tests/cli.
#pragma once

#include <string>
#include <vector>

#include "run/engine/engine.h"

namespace lumen::run {

enum class Stage : uint8_t {
  graph,  // after all passes, with its groups
  loops,  // loop IR of every distinct kernel
  llvm,   // LLVM IR
  assembly,
  object,  // bytes of a relocatable file
  bids,    // what families of kernels offered for each product, with predicted costs
};
Stage stage_from_name(const std::string& name);  // graph, loops, llvm, asm, obj, bids; Error (exit 2) otherwise

// `machine` as users type it. Error names what a target lacks.
std::string stage_text(const graph::Graph& g, const CompileOptions& options, const std::string& machine, Stage stage);

// What each distinct kernel needs of a GPU (emit/report.h), as a table. Error (exit 2) for a CPU.
std::string check_text(const graph::Graph& g, const CompileOptions& options, const std::string& machine);

struct MachineLine {
  std::string name, triple, features, tier;  // tier: measured, emulated, compiled
  bool runs_here = false;
  int vector_bits = 0;
};
std::vector<MachineLine> machine_lines();
std::string native_machine_name();
std::string compiler_version();  // LLVM's and the code generator's

// A machine whose code `device` (as people type it) executes; Error (exit 3) otherwise. Of GPUs the driver has the last
// word.
machine::MachineRef machine_to_run(const std::string& name, const std::string& device = "cpu");

}  // namespace lumen::run

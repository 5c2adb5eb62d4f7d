// Compilation stages of a graph as text, for any machine on any host; and the list of machines. Used by `lumen compile`
// and `lumen doctor`. Proved by tests/cli.
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
  bids,    // bids of kernel families for each product, with predicted costs
};
Stage stage_from_name(const std::string& name);  // graph, loops, llvm, asm, obj, bids; Error (exit 2) otherwise

// `machine` in the user's spelling. Error names missing features of a target.
std::string stage_text(const graph::Graph& g, const CompileOptions& options, const std::string& machine, Stage stage);

// GPU resources of each distinct kernel (emit/report.h), as a table. Error (exit 2) for a CPU.
std::string check_text(const graph::Graph& g, const CompileOptions& options, const std::string& machine);

struct MachineLine {
  std::string name, triple, features, tier;  // tier: measured, emulated, compiled
  bool runs_here = false;
  int vector_bits = 0;
};
std::vector<MachineLine> machine_lines();
std::string native_machine_name();
std::string compiler_version();  // LLVM's and the code generator's

// A machine whose code `device` (in the user's spelling) executes; Error (exit 3) otherwise. For GPUs the driver
// decides.
machine::MachineRef machine_to_run(const std::string& name, const std::string& device = "cpu");

}  // namespace lumen::run

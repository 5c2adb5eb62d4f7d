#include "run/engine/stages.h"

#include <set>

#include "base/error.h"
#include "emit/emit.h"
#include "graph/ir/text.h"
#include "kernel/loop/text.h"
#include "run/device/choose.h"

namespace lumen::run {
namespace {

const char* shape_name(graph::KernelShape shape) {
  switch (shape) {
    case graph::KernelShape::map:
      return "map";
    case graph::KernelShape::reduce:
      return "reduce";
    case graph::KernelShape::dot:
      return "dot";
    case graph::KernelShape::attend:
      return "attend";
    case graph::KernelShape::attend_gradient:
      return "attend_gradient";
    case graph::KernelShape::move:
      return "move";
  }
  return "";
}

std::string value_list(const std::vector<graph::ValueId>& values) {
  std::string text;
  for (graph::ValueId v : values) text += fmt::format("{}%{}", text.empty() ? "" : ", ", v);
  return text;
}

std::string plan_text(const graph::Pipeline& pipeline) {
  std::string text = graph::print(pipeline.plan.graph);
  int number = 0;
  for (const graph::Group& g : pipeline.plan.groups) {
    text += fmt::format("# group {} {}: reads {} | computes {} | writes {}\n", number++, shape_name(g.shape),
                        value_list(g.inputs), value_list(g.nodes), value_list(g.results));
  }
  return text + fmt::format("# arena {} bytes\n", pipeline.memory.arena_bytes);
}

}  // namespace

Stage stage_from_name(const std::string& name) {
  if (name == "graph") return Stage::graph;
  if (name == "loops" || name == "loop") return Stage::loops;
  if (name == "llvm") return Stage::llvm;
  if (name == "asm" || name == "assembly") return Stage::assembly;
  if (name == "obj" || name == "object") return Stage::object;
  throw Error(Exit::usage, fmt::format("unknown stage '{}'", name), "stages: graph, loops, llvm, asm, obj");
}

std::string stage_text(const graph::Graph& g, const CompileOptions& options, const std::string& machine, Stage stage) {
  const machine::MachineRef target = machine::find_machine(machine);
  const graph::Pipeline pipeline = graph::run_pipeline(g, options.assignments, options.symbols, options.products);
  if (stage == Stage::graph) return plan_text(pipeline);
  synth::Options synth_options;
  synth_options.exact = options.exact;
  std::vector<loop::Kernel> kernels;
  std::set<std::string> seen;
  std::string loops;
  for (const graph::Group& group : pipeline.plan.groups) {
    for (synth::Step& step : synth::synthesize(pipeline.plan, group, *target, synth_options).steps) {
      std::string text = loop::print(step.kernel);
      if (!seen.insert(text).second) continue;
      loops += fmt::format("# {}\n{}\n", step.plan, text);
      // Equal plans with other constants must not share a symbol.
      step.kernel.name += fmt::format("_{}", kernels.size());
      kernels.push_back(std::move(step.kernel));
    }
  }
  switch (stage) {
    case Stage::loops:
      return loops;
    case Stage::llvm:
      return emit::emit(kernels, *target, emit::Output::llvm);
    case Stage::assembly:
      return emit::emit(kernels, *target, emit::Output::assembly);
    default:
      return emit::emit(kernels, *target, emit::Output::object);
  }
}

std::vector<MachineLine> machine_lines() {
  std::vector<MachineLine> lines;
  for (const machine::MachineRef& m : machine::all_machines()) {
    const char* tiers[] = {"measured", "emulated", "compiled"};
    lines.push_back(
        {m->name, m->triple, m->features, tiers[static_cast<int>(m->tier)], machine::runs_here(*m), m->vector_bits});
  }
  return lines;
}

std::string native_machine_name() {
  return machine::native_machine()->name;
}

std::string compiler_version() {
  return emit::version();
}

machine::MachineRef machine_to_run(const std::string& name, const std::string& device) {
  const machine::MachineRef m = machine::find_machine(name);
  const DeviceChoice::Kind kind = parse_device(device).kind;
  if (m->kind == machine::Kind::gpu && kind != DeviceChoice::Kind::cpu) return m;
  if (m->kind == machine::Kind::gpu || kind == DeviceChoice::Kind::gpu) {
    throw Error(Exit::hardware, fmt::format("machine '{}' is no machine of device '{}'", name, device),
                "`lumen doctor` lists machines and devices");
  }
  if (!machine::runs_here(*m)) {
    throw Error(Exit::hardware, fmt::format("this processor cannot execute code for '{}'", name),
                "`lumen doctor` lists the machines that run here; `lumen compile --target` makes code for any");
  }
  return m;
}

}  // namespace lumen::run

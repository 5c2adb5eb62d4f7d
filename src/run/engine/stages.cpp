#include "run/engine/stages.h"

#include <set>

#include "base/error.h"
#include "base/ordinal.h"
#include "emit/emit.h"
#include "emit/report.h"
#include "graph/ir/text.h"
#include "kernel/loop/text.h"
#include "kernel/synth/synth.h"
#include "run/device/choose/choose.h"
#include "run/device/gpu/gpu.h"
#include "run/engine/compile/compile.h"
#include "run/engine/compile/repeat.h"
#include "run/engine/compile/scan.h"
#include "run/engine/program/explain.h"

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

namespace {

struct Written {
  std::vector<loop::Kernel> kernels;
  std::vector<std::string> plans;
  std::string loops;                 // as text
  std::vector<OfferedPlans> offers;  // for products
};

// Every distinct kernel of a plan, including scan steps.
void write_kernels(const graph::Pipeline& pipeline, const machine::Machine& target, const synth::Options& options,
                   std::set<std::string>* seen, Written* to) {
  Written& out = *to;
  for (const graph::Group& group : pipeline.plan.groups) {
    if (is_exchange(pipeline.plan.graph, group)) continue;
    if (is_scan(pipeline.plan.graph, group)) {
      write_kernels(plan_body(pipeline.plan, group, target), target, options, seen, to);
      continue;
    }
    synth::Synthesis made = synth::synthesize(pipeline.plan, group, target, options);
    if (!made.bids.empty()) out.offers.push_back({made.steps.back().plan, std::move(made.bids)});
    for (synth::Step& step : made.steps) {
      std::string text = loop::print(step.kernel);
      if (!seen->insert(text).second) continue;
      out.loops += fmt::format("# {}\n{}\n", step.plan, text);
      // Equal plans with different constants must not share a symbol.
      step.kernel.name += fmt::format("_{}", out.kernels.size());
      out.kernels.push_back(std::move(step.kernel));
      out.plans.push_back(step.plan);
    }
  }
}

Written write_kernels(const graph::Pipeline& pipeline, const machine::Machine& target, const CompileOptions& wanted) {
  synth::Options options;
  options.exact = wanted.exact;
  options.invariant = wanted.invariant;
  options.products = wanted.products.scalar;
  Written out;
  std::set<std::string> seen;
  write_kernels(pipeline, target, options, &seen, &out);
  return out;
}

std::string number(const std::optional<int>& x) {
  return x ? fmt::format("{}", *x) : "?";
}

}  // namespace

std::string check_text(const graph::Graph& g, const CompileOptions& options, const std::string& machine) {
  const machine::MachineRef target = machine::find_machine(machine);
  if (target->kind != machine::Kind::gpu)
    throw Error(Exit::usage, fmt::format("--check is about kernels of GPUs, {} is a CPU", target->name));
  const graph::Pipeline pipeline = run_pipeline(g, options, *target);
  const Written written = write_kernels(pipeline, *target, options);
  const std::vector<emit::KernelReport> reports = emit::report(written.kernels, *target);
  std::string text = fmt::format(
      "{}: {} kernels; vgpr, agpr, sgpr: registers of a lane, for sums, of a wave; bytes: private of a "
      "lane, shared of a block; inner loop: matrix + dot of all instructions\n",
      target->name, reports.size());
  text += fmt::format("{:>5} {:>5} {:>5} {:>7} {:>8} {:>7} {:>6} {:>13} {:>14}  {}\n", "vgpr", "agpr", "sgpr", "spills",
                      "private", "shared", "waves", "blocks", "inner loop", "plan");
  bool unknown = false;
  for (size_t i = 0; i < reports.size(); ++i) {
    const emit::KernelReport& r = reports[i];
    unknown = unknown || !r.vector_registers;
    const std::optional<int> spills =
        r.vector_spills ? std::optional(*r.vector_spills + r.scalar_spills.value_or(0)) : std::nullopt;
    text += fmt::format("{:>5} {:>5} {:>5} {:>7} {:>8} {:>7} {:>6} {:>13} {:>14}  {}\n", number(r.vector_registers),
                        number(r.accumulators), number(r.scalar_registers), number(spills), r.private_bytes,
                        r.shared_bytes, number(r.waves), fmt::format("{}x{}", r.launch.blocks, r.launch.threads),
                        fmt::format("{}+{}/{}", r.loop_matrix, r.loop_dots, r.loop_instructions), written.plans[i]);
  }
  if (unknown)
    text += "?: unknown from PTX; registers and spills are decided when the driver compiles it for its card\n";
  return text;
}

Stage stage_from_name(const std::string& name) {
  if (name == "graph") return Stage::graph;
  if (name == "loops" || name == "loop") return Stage::loops;
  if (name == "llvm") return Stage::llvm;
  if (name == "asm" || name == "assembly") return Stage::assembly;
  if (name == "obj" || name == "object") return Stage::object;
  if (name == "bids") return Stage::bids;
  throw Error(Exit::usage, fmt::format("unknown stage '{}'", name), "stages: graph, loops, llvm, asm, obj, bids");
}

std::string stage_text(const graph::Graph& g, const CompileOptions& options, const std::string& machine, Stage stage) {
  const machine::MachineRef target = machine::find_machine(machine);
  const graph::Pipeline pipeline = run_pipeline(g, options, *target);
  if (stage == Stage::graph) return plan_text(pipeline);
  const auto [kernels, plans, loops, offers] = write_kernels(pipeline, *target, options);
  switch (stage) {
    case Stage::loops:
      return loops;
    case Stage::bids:
      return bids_table(offers, target->costs.hertz);
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
  for (const machine::MachineRef& m : all_rows()) {
    const char* tiers[] = {"measured", "emulated", "compiled"};
    lines.push_back({m->name, m->triple, m->features, tiers[ordinal(m->tier)], machine::runs_here(*m), m->vector_bits});
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
  machine::MachineRef m = machine::find_machine(name);
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

// Compiles a graph to a launch list.
//
// May include: base, graph/fuse, graph/ir, graph/match, graph/pipeline, graph/steps, kernel/loop, kernel/machine,
// kernel/synth, kernel/synth/gemm, run/device, run/engine/cache, run/engine/program.
// Offers: judge.h, scan.h, steps.h.
#pragma once

#include "run/engine/compile/repeat.h"
#include "run/engine/program/execute.h"

namespace lumen::run {

class KernelJudge;

// The environment of a compilation.
struct CompileContext {
  std::shared_ptr<Device> device;
  std::shared_ptr<KernelCache> cache;
  int threads = 1;
  std::shared_ptr<Tuner> tuner = nullptr;     // null: plans are chosen by the cost model
  std::shared_ptr<Tuner> products = nullptr;  // stores measurements of libraries (product_choice.h); null: no libraries
  std::shared_ptr<KernelJudge> judge = nullptr;  // kernels are tried before use; null: they are not
};

LaunchList compile(const CompileContext& context, const graph::Graph& g, const CompileOptions& options);

// Runs the graph's passes for a machine: GPU memory is scarce, so a very large weight is not materialized after
// dequantization.
graph::Pipeline run_pipeline(const graph::Graph& g, const CompileOptions& options, const machine::Machine& machine);
// LaunchList::arena_bytes of the compiled graph, without generating code.
int64_t arena_bytes(const CompileContext& context, const graph::Graph& g, const CompileOptions& options);

// Rounds up to the alignment of values in a block of memory.
int64_t aligned(int64_t bytes);

// Steps outside of a plan: values are numbered by the caller, scratch is placed from `scratch_at` on.
std::vector<Launch> compile_steps(const CompileContext& context, const Synthesized& steps,
                                  const std::vector<BufferAddress>& values, int64_t scratch_at, CompileReport* report);

}  // namespace lumen::run

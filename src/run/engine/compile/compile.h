// The joint of the house: a graph becomes a launch list.
//
// May include: base, graph/fuse, graph/ir, graph/match, graph/pipeline, graph/steps, kernel/loop, kernel/machine,
// kernel/synth, kernel/synth/gemm, kernel/synth/step, run/device, run/engine/cache, run/engine/program.
// Offers: judge.h, repeat.h, scan.h, steps.h.
#pragma once

#include "kernel/synth/step/step.h"
#include "run/engine/program/execute.h"

namespace lumen::run {

class KernelJudge;

// What a compilation works with.
struct CompileContext {
  std::shared_ptr<Device> device;
  std::shared_ptr<KernelCache> cache;
  int threads = 1;
  std::shared_ptr<Tuner> tuner = nullptr;  // null: plans are what the cost model says
  std::shared_ptr<Tuner> products =
      nullptr;  // keeps what was measured of libraries (product_choice.h); null: none is used
  std::shared_ptr<KernelJudge> judge = nullptr;  // kernels are tried before they are trusted; null: they are not
};

LaunchList compile(const CompileContext& context, const graph::Graph& g, const CompileOptions& options);

// The graph's passes as they are for a machine: memory of GPUs is dear, so what a very large weight decodes to is not
// written out there.
graph::Pipeline run_pipeline(const graph::Graph& g, const CompileOptions& options, const machine::Machine& machine);
// LaunchList::arena_bytes of that, without any code.
int64_t arena_bytes(const CompileContext& context, const graph::Graph& g, const CompileOptions& options);

// Up to where the next value in a block of memory may begin.
int64_t aligned(int64_t bytes);

// The hash of all kernels' text: equal hashes, equal kernels.
std::string hash_of(const synth::Synthesis& s);

// Steps that belong to no plan: values are numbered by the caller, scratch is placed from `scratch_at` on.
std::vector<Launch> compile_steps(const CompileContext& context, const synth::Synthesis& steps,
                                  const std::vector<BufferAddress>& values, int64_t scratch_at, CompileReport* report);

}  // namespace lumen::run

// The synthesizer's entry point: one fused group of graph nodes and a machine in, kernels in loop IR out. Five shapes
// (map, reduce, dot, attend, move); formats enter only through their layouts, routines and facts. Kernels for a format
// alone are in convert.h.
//
// May include: base, graph/match, graph/pass, graph/pipeline, kernel/synth/attention/gpu, kernel/synth/encode,
// kernel/synth/gemm, kernel/synth/gemm/bid, kernel/synth/gemm/gpu, kernel/synth/gemm/operand, kernel/synth/map,
// kernel/synth/move, kernel/synth/reduce, kernel/synth/step.
#pragma once

#include "kernel/synth/encode/convert.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

// Views (reshape, permute, broadcast, slice, windows) that fuse folded away are followed here. Every value has numeric
// dims.
Synthesis synthesize(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                     const Options& options = {});

}  // namespace lumen::synth

// The synthesizer's door: one fused group of graph nodes and a machine in, kernels in loop IR out. Five shapes (map,
// reduce, dot, attend, move); formats enter only through their layouts, routines and facts.
#pragma once

#include <string>
#include <vector>

#include "graph/pass/pipeline.h"
#include "kernel/loop/loop.h"
#include "kernel/machine/machine.h"

namespace lumen::synth {

// Where a kernel's buffer parameter comes from.
struct Argument {
  enum class From : uint8_t { value, scratch } from = From::value;
  int index = 0;  // graph::ValueId or scratch number
  friend bool operator==(const Argument&, const Argument&) = default;
};

struct Step {
  loop::Kernel kernel;
  std::vector<Argument> arguments;  // one per kernel param
  std::string plan;                 // for --explain: "dot 768x512x128 tile 6x32 f32 fma"
  double flops = 0, bytes = 0;      // useful work and unavoidable traffic, for rooflines
  double cycles = 0;                // of one core, by the cost model that chose the plan; 0: it has none
};

struct Synthesis {
  std::vector<Step> steps;       // run in order
  std::vector<int64_t> scratch;  // bytes of each scratch buffer
  int candidates = 1;            // plans worth a measurement, this one included; all give the same bits
};

struct Options {
  bool exact = false;             // f32 activations in dots with quantized weights (no dynamic activation quantization)
  int candidate = 0;              // 0, or beyond Synthesis::candidates: the cost model's choice
  Scalar products = Scalar::f32;  // what factors inside kernels of GPUs may be rounded to, where it pays
};

// Views (reshape, permute, broadcast, slice) that fuse folded away are followed here. Every value has numeric dims.
Synthesis synthesize(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                     const Options& options = {});

// Kernels that belong to a format alone, for conversion tools and `format check`: x f32[rows, columns] -> blob, and
// back.
Synthesis synthesize_encode(const Format& f, int64_t rows, int64_t columns, const machine::Machine& target);
Synthesis synthesize_decode(const Format& f, int64_t rows, int64_t columns, const machine::Machine& target);

}  // namespace lumen::synth

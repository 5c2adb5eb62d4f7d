// Results of synthesis: steps, each a kernel in loop IR with its buffers. Every synthesizer includes this; synth.h
// dispatches to them.
//
// May include: graph/fuse, graph/group, graph/match, kernel/loop, kernel/machine.
// Offers: append.h, shortlist.h, software_pipeline.h, step_builder.h.
#pragma once

#include <string>
#include <vector>

#include "graph/group/access.h"
#include "kernel/loop/loop.h"
#include "kernel/machine/machine.h"

namespace lumen::synth {

// How groups are read (graph/group/access.h).
using graph::Access;
using graph::collapse;
using graph::Collapsed;
using graph::dense_strides_of;
using graph::own_strides_of;
using graph::product;

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
  double cycles = 0;  // by the cost model that chose the plan, of one core or of a whole GPU, of all steps
                      // of the group; 0: it has none
};

// A kernel family's bid for a group, for display.
struct BidNote {
  std::string family, plan;
  double cycles = 0;
  std::string refused;  // why there is no bid
};

struct Synthesis {
  std::vector<Step> steps;       // run in order
  std::vector<int64_t> scratch;  // bytes of each scratch buffer
  int candidates = 1;            // plans worth a measurement, this one included; all give the same bits
  std::vector<BidNote> bids;     // of products: the chosen one first, then the others, the cheapest first
};

struct Options {
  bool exact = false;             // f32 activations in dots with quantized weights (no dynamic activation quantization)
  int candidate = 0;              // 0, or beyond Synthesis::candidates: the cost model's choice
  Scalar products = Scalar::f32;  // type to which factors inside kernels of GPUs may be rounded, where it pays
  // The sums of a row of activations are added in an order that the other rows of the step do not change. Processors.
  bool invariant = false;
};

// "64x128x32", for plans.
std::string shape_text(const std::vector<int64_t>& extents);

}  // namespace lumen::synth

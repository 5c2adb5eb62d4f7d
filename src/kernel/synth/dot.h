// The door to dots: families of kernels bid (gemm/bid/bid.h), and the steps of the cheapest are written.
// Proved by tests/kernel/synth/gemm/dot_*_test.cpp.
#pragma once

#include "kernel/synth/step/step.h"

namespace lumen::synth {

Synthesis synthesize_dot(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                         const Options& options);

// What the cheapest way is predicted to take, of the whole machine; infinity where there is none, as there may be for
// products that encode.
double product_cycles(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                      const Options& options);

// What every family would write, the cheapest first; `others`: its other plans, too. For measurements.
struct WrittenBid {
  BidNote bid;
  Synthesis steps;
};
std::vector<WrittenBid> synthesize_bids(const graph::Plan& plan, const graph::Group& group,
                                        const machine::Machine& target, const Options& options, bool others);

}  // namespace lumen::synth

// Entry point for dots: families of kernels bid (gemm/bid/bid.h), and the steps of the cheapest are written.
// Proved by tests/kernel/synth/gemm/dot_*_test.cpp.
#pragma once

#include "kernel/synth/step/step.h"

namespace lumen::synth {

Synthesis synthesize_dot(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                         const Options& options);

// Predicted cycles of the cheapest bid, on the whole machine; infinity if there is none, which is possible for products
// that encode.
double product_cycles(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                      const Options& options);

// How the chosen product is computed (gemm/product_schedule.h), as a text.
std::string product_schedule(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                             const Options& options);

// The steps of every family's bid, the cheapest first; `others`: of its other plans, too. For measurements.
struct WrittenBid {
  BidNote bid;
  Synthesis steps;
};
std::vector<WrittenBid> synthesize_bids(const graph::Plan& plan, const graph::Group& group,
                                        const machine::Machine& target, const Options& options, bool others);

}  // namespace lumen::synth

// A product whose result is encoded (dot groups that encode, graph/fuse/plan.h): in the product's own epilogue, if
// blocks of lanes compute it and that pays; else by later kernels. Proved by
// tests/kernel/synth/gemm/gpu/product_codes_test.cpp.
#pragma once

#include "kernel/synth/synth.h"

namespace lumen::synth {

bool encodes_product(const graph::Plan& plan, const graph::Group& group);
Synthesis synthesize_product_codes(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                                   const Options& options);

// Splits such a group: the product alone, then groups that encode its result and find extremes of it.
std::vector<graph::Group> product_and_codes(const graph::Plan& plan, const graph::Group& group);

}  // namespace lumen::synth

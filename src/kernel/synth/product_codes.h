// A product whose result is encoded (dot groups that encode, graph/fuse/plan.h): in the product's own epilogue, where
// blocks of lanes compute it and that pays; else by kernels behind it. Proved by
// tests/kernel/synth/gemm/gpu/product_codes_test.cpp.
#pragma once

#include "kernel/synth/synth.h"

namespace lumen::synth {

bool encodes_product(const graph::Plan& plan, const graph::Group& group);
Synthesis synthesize_product_codes(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                                   const Options& options);

// The groups that such a group stands for: the product alone, then what encodes its result and finds extremes of it.
std::vector<graph::Group> product_and_codes(const graph::Plan& plan, const graph::Group& group);

}  // namespace lumen::synth

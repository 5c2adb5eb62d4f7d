// Recognizes a group that is a product of two matrices in memory, followed by nothing but a rounding of the result or
// one addition: then a library can do it as well. Proved by tests/kernel/synth/gemm/dense_product_test.cpp.
#pragma once

#include <optional>
#include <vector>

#include "graph/fuse/plan.h"
#include "kernel/machine/dense_product.h"

namespace lumen::synth {

struct DenseGroup {
  machine::DenseProduct product;
  std::vector<graph::ValueId> values;  // in memory: left, right, the scales and the addend if any, result
};

// `products`: the type that kernels may round f32 factors to (synth::Options::products); a library rounds nothing.
std::optional<DenseGroup> dense_group(const graph::Plan& plan, const graph::Group& group, Scalar products);

}  // namespace lumen::synth

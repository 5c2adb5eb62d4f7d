// The best low-rank approximation: W ~ left right, by the singular values of W. Small matrices are decomposed exactly;
// for large ones randomized subspace iteration is used (Halko, Martinsson, Tropp 2011), with products by the engine. A
// function of (matrix, rank, iterations, seed) only, at any number of threads. Proved by
// tests/model/train/adapter/adapter_init_test.cpp and tests/model/compress/low_rank_correction/factors_test.cpp.
#pragma once

#include <cstdint>

#include "model/arch/model.h"
#include "run/engine/engine.h"

namespace lumen::model::linear {

struct LowRankPair {
  arch::Weight left;   // f32 [N, rank]: singular vectors times roots of singular values
  arch::Weight right;  // f32 [rank, K]
};

struct DecompositionOptions {
  int64_t rank = 0;
  // Subspace iterations; 0: exact. Negative: exact for small matrices, -n iterations for others.
  int64_t iterations = -16;
  uint32_t seed = 0;
};

// The decomposition of an f32 matrix [N, K]. Its singular values are divided by `scale` first.
LowRankPair decompose(run::Engine& engine, const arch::Weight& w, double scale, const DecompositionOptions& options);
// The same, weighted by the inputs of W: minimizes tr((W - left right) H (W - left right)^T) for H [K, K], f32,
// symmetric, positive semidefinite. left spans the leading eigenvectors of W H W^T, and left right is the projection of
// W onto that span, so H need not be invertible; columns of left have the norms of rows of right.
LowRankPair decompose_weighted(run::Engine& engine, const arch::Weight& w, const arch::Weight& h,
                               const DecompositionOptions& options);
// Approximate host memory for a matrix of this size, in addition to the matrix.
int64_t decomposition_bytes(int64_t rows, int64_t columns, const DecompositionOptions& options);

}  // namespace lumen::model::linear

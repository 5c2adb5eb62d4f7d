// The best matrices of a low rank: W ~ left right, by the singular values of W. Small matrices are decomposed exactly;
// of large ones a random subspace is iterated (Halko, Martinsson, Tropp 2011), with products by the engine. A function
// of (matrix, rank, iterations, seed) alone, at any number of threads. Proved by
// tests/model/train/adapter/rewrite_test.cpp and tests/model/compress/correct/factors_test.cpp.
#pragma once

#include <cstdint>

#include "model/arch/model.h"
#include "run/engine/engine.h"

namespace lumen::model {

struct LowRankPair {
  Weight left;   // f32 [N, rank]: singular vectors times roots of singular values
  Weight right;  // f32 [rank, K]
};

struct DecompositionOptions {
  int64_t rank = 0;
  // Iterations of the random subspace; 0: exactly. Negative: exactly where it is quick, -n iterations elsewhere.
  int64_t iterations = -16;
  uint32_t seed = 0;
};

// The decomposition of an f32 matrix [N, K]. Its singular values are divided by `scale` first.
LowRankPair decompose(run::Engine& engine, const Weight& w, double scale, const DecompositionOptions& options);
// The same where what is read of W counts: tr((W - left right) H (W - left right)^T) is least, for H [K, K], f32,
// symmetric, with no eigenvalue below 0. left spans the leading eigenvectors of W H W^T, and left right is what of W
// lies in that span, so that H need have no inverse; and columns of left have the norms of rows of right.
LowRankPair decompose_weighted(run::Engine& engine, const Weight& w, const Weight& h,
                               const DecompositionOptions& options);
// About how many bytes it takes of the host for a matrix of so many rows and columns, beside the matrix.
int64_t decomposition_bytes(int64_t rows, int64_t columns, const DecompositionOptions& options);

}  // namespace lumen::model

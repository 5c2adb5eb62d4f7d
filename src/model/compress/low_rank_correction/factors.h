// The low-rank sum that corrects one matrix for its rounding: W ~ W' + B A. Proved by
// tests/model/compress/low_rank_correction/factors_test.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "model/linear/decomposition.h"

namespace lumen::model::compress {

struct FactorOptions {
  int64_t rank = 32;      // at most; less for a matrix with fewer rows or columns
  double damping = 0.01;  // this times the mean of the gram's diagonal is added to the diagonal
  uint32_t seed = 0;
};

// Errors relative to W: |W - ..| / |W|; for outputs, the same of the products with the text's activations (the gram), <
// 0 without a gram.
struct ErrorFigures {
  double weights = 0, outputs = -1;
};

struct Factors {
  linear::LowRankPair pair;   // B, A
  std::vector<float> values;  // W' + B A
  ErrorFigures before, after;
};

// A gram [K, K] with `part` times the mean of its diagonal added to the diagonal.
arch::Weight damped(const arch::Weight& gram, double part);

// `w`, `rounded`: f32 [N, K]. `gram`: X^T X of the inputs, f32 [K, K] (EoRA); null: B A is the best low-rank fit of W -
// W' itself (LQER, SVDQuant). Except for damping, B A is optimal where N or K is at most 512; for larger matrices
// subspace iteration is used.
Factors factors_of(run::Engine& engine, const arch::Weight& w, const arch::Weight& rounded, const arch::Weight* gram,
                   const FactorOptions& options);

}  // namespace lumen::model::compress

// The low-rank sum that gives one matrix back what rounding took from it: W ~ W' + B A. Proved by
// tests/model/compress/correct/factors_test.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "model/linear/decomposition.h"

namespace lumen::model {

struct FactorOptions {
  int64_t rank = 32;      // at most: a matrix of fewer rows or columns gets as many
  double damping = 0.01;  // part of the mean of the gram's diagonal that is added to it
  uint32_t seed = 0;
};

// Errors relative to W: |W - ..| / |W|; of outputs the same of what the matrix computes on the text the gram is of,
// below 0 without one.
struct ErrorFigures {
  double weights = 0, outputs = -1;
};

struct Factors {
  LowRankPair pair;           // B, A
  std::vector<float> values;  // W' + B A
  ErrorFigures before, after;
};

// A gram [K, K] with part of the mean of its diagonal added to that.
Weight damped(const Weight& gram, double part);

// `w`, `rounded`: f32 [N, K]. `gram`: sums of products of columns of what is read, f32 [K, K] (EoRA); null: B A is the
// best of its rank for W - W' itself (LQER, SVDQuant). Nothing but the damping stands between B A and the optimum where
// N or K is at most 512; of larger matrices a subspace is iterated.
Factors factors_of(run::Engine& engine, const Weight& w, const Weight& rounded, const Weight* gram,
                   const FactorOptions& options);

}  // namespace lumen::model

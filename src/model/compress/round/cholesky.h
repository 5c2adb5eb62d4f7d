// H = (U + I) D (U + I)^T with U strictly upper triangular: Cholesky's factor from the bottom right corner, normalised.
// x_k = w_k + sum over j < k of d_j U_jk is then what column k should be when those before it lost d. No inverse is
// needed. Proved by tests/model/compress/round/cholesky_test.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "run/engine/engine.h"

namespace lumen::model {

struct Factor {
  int64_t order = 0;
  std::span<float> u;     // [order, order], zeros on and below the diagonal
  std::vector<double> d;  // what is left of an error of each column when those behind it answer: all positive
  std::shared_ptr<float[]> memory;
};

enum class FactorMethod : uint8_t {
  automatic,  // f64 up to kMostExact, or as far as blocks on the diagonal go where a GPU multiplies
  exact,      // f64 throughout, on the processor: order^3 / 3 multiplications and additions
  tiles,      // blocks on the diagonal in f64, the rest f32 by the engine's products
};
constexpr int64_t kMostExact = 4096;

// The factor of the symmetric h [order, order], read above and on the diagonal, with `damping` added to its diagonal.
// Nothing where that is not positive definite, within rounding. Same bits at any thread count. Error (exit 3) where
// memory does not suffice; `h` must be finite.
std::optional<Factor> factorize(run::Engine& engine, std::span<const float> h, int64_t order, double damping,
                                FactorMethod method = FactorMethod::automatic);

// (U + I)^-1, upper triangular with ones on the diagonal; by f64.
std::vector<float> inverse(const Factor& factor);

}  // namespace lumen::model

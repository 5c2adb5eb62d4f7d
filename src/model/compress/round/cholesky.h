// H = (U + I) D (U + I)^T with U strictly upper triangular: Cholesky's factor from the bottom right corner, normalised.
// x_k = w_k + sum over j < k of d_j U_jk is then the target of column k after the errors d of earlier columns. No
// inverse is needed. Proved by tests/model/compress/round/cholesky_test.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "run/engine/engine.h"

namespace lumen::model::compress {

struct Factor {
  int64_t order = 0;
  std::span<float> u;     // [order, order], zeros on and below the diagonal
  std::vector<double> d;  // the part of each column's squared error that later columns cannot compensate: all positive
  std::shared_ptr<float[]> memory;
};

enum class FactorMethod : uint8_t {
  automatic,  // f64 up to kMostExact; above, tiles where a GPU multiplies
  exact,      // f64 throughout, on the processor: order^3 / 3 multiplications and additions
  tiles,      // blocks on the diagonal in f64, the rest f32 by the engine's products
};
constexpr int64_t kMostExact = 4096;

// The factor of the symmetric h [order, order], of which the upper triangle is read, with `damping` added to its
// diagonal. nullopt where that is not positive definite, within rounding. Same bits at any thread count. Error (exit 3)
// when memory is insufficient; `h` must be finite.
std::optional<Factor> factorize(run::Engine& engine, std::span<const float> h, int64_t order, double damping,
                                FactorMethod method = FactorMethod::automatic);

// (U + I)^-1, upper triangular with a unit diagonal; in f64.
std::vector<float> inverse(const Factor& factor);

}  // namespace lumen::model::compress

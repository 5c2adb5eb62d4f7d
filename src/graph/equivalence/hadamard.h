// Hadamard matrices: entries 1 and -1, H H^T = n I, as Kronecker products of small ones. Constructed: Sylvester's for
// powers of two, Paley's two for primes, Williamson's by a search among sequences that are invariant under a group of
// multipliers. Proved by tests/graph/equivalence/hadamard_test.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lumen::graph {

struct SignMatrix {
  int64_t n = 0;
  std::vector<int8_t> values;  // row-major
  int at(int64_t row, int64_t column) const { return values[row * n + column]; }
};

// Whether H of order n can be constructed: n = K * 2^m with a constructed K.
bool has_hadamard(int64_t n);
// H of order n is the Kronecker product of these, the first outermost. Error (user) if it cannot be constructed.
std::vector<SignMatrix> hadamard_factors(int64_t n);
// row := row H / sqrt(n), or with `transposed` row H^T / sqrt(n).
void multiply_hadamard(std::span<double> row, std::span<const SignMatrix> factors, bool transposed = false);

}  // namespace lumen::graph

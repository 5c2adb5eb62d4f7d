// Dense upper triangles in f64 on the processor, by blocks whose order is fixed: same bits at any thread count.
#pragma once

#include <cstdint>

namespace lumen::model {

// a [n, n] row-major, read above and on the diagonal, becomes R there, with a = R R^T. False where a diagonal is not
// above `least`; a is spoilt then.
bool reverse_cholesky(double* a, int64_t n, double least);

// x [n, n] becomes the inverse of the upper triangle r; zeros below the diagonal.
void invert_upper(const double* r, double* x, int64_t n);

}  // namespace lumen::model

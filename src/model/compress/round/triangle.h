// Dense upper triangles in f64 on the processor, blocked in a fixed order: same bits at any thread count.
#pragma once

#include <cstdint>

namespace lumen::model::compress {

// a [n, n] row-major, of which the upper triangle is read, is overwritten with R, where a = R R^T. False where a
// diagonal element is not above `least`; a is then undefined.
bool reverse_cholesky(double* a, int64_t n, double least);

// x [n, n] becomes the inverse of the upper triangle r; zeros below the diagonal.
void invert_upper(const double* r, double* x, int64_t n);

}  // namespace lumen::model::compress

#include "model/compress/round/triangle.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/threads/team.h"
#include "base/wider_vectors.h"

namespace lumen::model::compress {
namespace {

constexpr int64_t kBlock = 64;  // columns factored at once
constexpr int64_t kWide = 256;  // columns per task of an update: with kBlock rows they stay in the L2 cache
constexpr int64_t kRows = 4;    // of the register tile
constexpr int64_t kLanes = 4, kVectors = 2;

typedef double Vector __attribute__((vector_size(kLanes * sizeof(double)), aligned(8), may_alias));

// a[4][8] -= r[4][depth] b[depth][8]
LUMEN_WIDER_VECTORS
void subtract_tile(double* a, int64_t a_line, const double* r, int64_t r_line, const double* b, int64_t b_line,
                   int64_t depth) {
  Vector sums[kRows][kVectors];
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t v = 0; v < kVectors; ++v) sums[i][v] = *reinterpret_cast<Vector*>(a + i * a_line + v * kLanes);
  for (int64_t k = 0; k < depth; ++k) {
    Vector line[kVectors];
    for (int64_t v = 0; v < kVectors; ++v) line[v] = *reinterpret_cast<const Vector*>(b + k * b_line + v * kLanes);
    for (int64_t i = 0; i < kRows; ++i)
      for (int64_t v = 0; v < kVectors; ++v) sums[i][v] -= r[i * r_line + k] * line[v];
  }
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t v = 0; v < kVectors; ++v) *reinterpret_cast<Vector*>(a + i * a_line + v * kLanes) = sums[i][v];
}

// a [rows, columns] -= r [rows, depth] b [depth, columns]; each sum in the order of depth, whatever the tiling.
void subtract_product(double* a, int64_t a_line, const double* r, int64_t r_line, const double* b, int64_t b_line,
                      int64_t rows, int64_t columns, int64_t depth) {
  constexpr int64_t kColumns = kLanes * kVectors;
  const int64_t whole_rows = rows / kRows * kRows, whole = columns / kColumns * kColumns;
  for (int64_t i = 0; i < whole_rows; i += kRows)
    for (int64_t j = 0; j < whole; j += kColumns)
      subtract_tile(a + i * a_line + j, a_line, r + i * r_line, r_line, b + j, b_line, depth);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = i < whole_rows ? whole : 0; j < columns; ++j) {
      double sum = a[i * a_line + j];
      for (int64_t k = 0; k < depth; ++k) sum -= r[i * r_line + k] * b[k * b_line + j];
      a[i * a_line + j] = sum;
    }
}

// Factors a diagonal block, column by column from the last.
bool factor_block(double* a, int64_t line, int64_t n, double least) {
  for (int64_t j = n - 1; j >= 0; --j) {
    if (!(a[j * line + j] > least)) return false;
    const double root = std::sqrt(a[j * line + j]);
    a[j * line + j] = root;
    for (int64_t i = 0; i < j; ++i) a[i * line + j] /= root;
    for (int64_t i = 0; i < j; ++i)
      for (int64_t k = i; k < j; ++k) a[i * line + k] -= a[i * line + j] * a[k * line + j];
  }
  return true;
}

}  // namespace

bool reverse_cholesky(double* a, int64_t n, double least) {
  std::vector<double> transposed;  // [kBlock, rows above]
  for (int64_t end = n; end > 0;) {
    const int64_t first = std::max<int64_t>(0, end - kBlock), wide = end - first;
    double* const corner = a + first * n + first;
    if (!factor_block(corner, n, wide, least)) return false;
    transposed.resize(wide * first);
    parallel_for(0, first, {.grain = 16, .is_worth = first > 256}, [&](int64_t i) {
      double* const line = a + i * n + first;
      for (int64_t c = wide - 1; c >= 0; --c) {
        double x = line[c];
        for (int64_t k = c + 1; k < wide; ++k) x -= line[k] * corner[c * n + k];
        line[c] = x / corner[c * n + c];
        transposed[c * first + i] = line[c];
      }
    });
    const int64_t tall = (first + kBlock - 1) / kBlock, across = (first + kWide - 1) / kWide;
    parallel_for(0, tall * across, {.grain = 1, .is_worth = first > 256}, [&](int64_t square) {
      const int64_t t = square / across, s = square % across;
      const int64_t row = t * kBlock, rows = std::min(kBlock, first - row);
      const int64_t column = std::max(s * kWide, row), columns = std::min((s + 1) * kWide, first) - column;
      if (columns > 0)
        subtract_product(a + row * n + column, n, a + row * n + first, n, transposed.data() + column, first, rows,
                         columns, wide);
    });
    end = first;
  }
  return true;
}

void invert_upper(const double* r, double* x, int64_t n) {
  std::fill(x, x + n * n, 0);
  for (int64_t end = n; end > 0;) {
    const int64_t first = std::max<int64_t>(0, end - kBlock), tall = end - first;
    const int64_t across = (n - first + kBlock - 1) / kBlock;
    parallel_for(0, across, {.grain = 1, .is_worth = n > 256}, [&](int64_t s) {
      const int64_t column = first + s * kBlock, columns = std::min(kBlock, n - column);
      // Rows after this block are done, and are zero left of their diagonal.
      const int64_t depth = std::min(n, column + columns) - end;
      if (depth > 0)
        subtract_product(x + first * n + column, n, r + first * n + end, n, x + end * n + column, n, tall, columns,
                         depth);
      for (int64_t i = end - 1; i >= first; --i) {
        double* const line = x + i * n + column;
        if (i >= column && i < column + columns) line[i - column] += 1;
        for (int64_t k = i + 1; k < end; ++k)
          for (int64_t j = 0; j < columns; ++j) line[j] -= r[i * n + k] * x[k * n + column + j];
        for (int64_t j = 0; j < columns; ++j) line[j] /= r[i * n + i];
      }
    });
    end = first;
  }
}

}  // namespace lumen::model::compress

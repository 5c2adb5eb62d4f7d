// Activations with the correlations and the uneven columns that those of models have, and their second moments.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "run/engine/engine.h"
#include "tests/run/kept_kernels.h"

namespace lumen::model::compress {

inline size_t place(int64_t row, int64_t columns, int64_t column) {
  return static_cast<size_t>(row * columns + column);
}

inline run::Engine::Options engine_options(int threads = 2) {
  run::Engine::Options o;
  o.cache_folder = kept_kernels();
  o.threads = threads;
  return o;
}

inline std::vector<float> normals(int64_t count, uint64_t seed, float scale = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> x(static_cast<size_t>(count));
  for (float& v : x) v = normal(random);
  return x;
}

// [rows, columns]: a few directions common to all columns, noise, and columns of very different size.
inline std::vector<float> activations(int64_t rows, int64_t columns, uint64_t seed) {
  const int64_t common = std::max<int64_t>(1, columns / 8);
  const std::vector<float> mixture = normals(common * columns, seed), sources = normals(rows * common, seed + 1),
                           noise = normals(rows * columns, seed + 2), sizes = normals(columns, seed + 3);
  std::vector<float> x(static_cast<size_t>(rows * columns));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      float sum = 0;
      for (int64_t k = 0; k < common; ++k) sum += sources[place(r, common, k)] * mixture[place(k, columns, c)];
      sum /= std::sqrt(static_cast<float>(common));
      x[place(r, columns, c)] = std::exp(sizes[static_cast<size_t>(c)]) * (sum + 0.3F * noise[place(r, columns, c)]);
    }
  return x;
}

// a^T b of matrices with as many rows.
inline std::vector<float> moments_between(const std::vector<float>& a, const std::vector<float>& b, int64_t rows,
                                          int64_t columns) {
  std::vector<double> sums(static_cast<size_t>(columns * columns));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < columns; ++i)
      for (int64_t j = 0; j < columns; ++j)
        sums[place(i, columns, j)] += double{a[place(r, columns, i)]} * b[place(r, columns, j)];
  return {sums.begin(), sums.end()};
}

inline std::vector<float> moments_of(const std::vector<float>& x, int64_t rows, int64_t columns) {
  return moments_between(x, x, rows, columns);
}

inline double mean_of_diagonal(const std::vector<float>& h, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += h[place(i, n, i)];
  return sum / static_cast<double>(n);
}

}  // namespace lumen::model::compress

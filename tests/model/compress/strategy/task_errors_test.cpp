// needs: cpu. What outputs lose by rounding, by the gram of what weights read: against plain sums in f64.
#include <gtest/gtest.h>

#include <cmath>

#include "model/compress/strategy/strategy.h"
#include "tests/model/compress/round/moments.h"

namespace lumen::model::compress {
namespace {

// Of the rows `step` apart.
double plain(const std::vector<float>& w, const std::vector<float>& rounded, const std::vector<float>& gram,
             int64_t rows, int64_t columns, int64_t step) {
  const auto energy = [&](const std::vector<double>& e) {
    double sum = 0;
    for (int64_t r = 0; r < rows; r += step)
      for (int64_t k = 0; k < columns; ++k)
        for (int64_t l = 0; l < columns; ++l)
          sum += e[place(r, columns, k)] * gram[place(k, columns, l)] * e[place(r, columns, l)];
    return sum;
  };
  std::vector<double> e(w.begin(), w.end());
  const double all = energy(e);
  for (size_t k = 0; k < e.size(); ++k) e[k] -= double{rounded[k]};
  return std::sqrt(energy(e) / all);
}

TEST(TaskErrors, AreThoseOfOutputs) {
  run::Engine engine(engine_options());
  TaskErrors errors(engine);
  const int64_t columns = 48;
  calibrate::TapSums reads;
  reads.tap.columns = columns;
  reads.gram = moments_of(activations(200, columns, 5), 200, columns);
  // All rows; and of twice as many as are looked at every other one.
  for (const int64_t rows : {int64_t{7}, TaskErrors::kRows, 2 * TaskErrors::kRows}) {
    const std::vector<float> w = normals(rows * columns, 6), off = normals(rows * columns, 7, 0.1F);
    std::vector<float> rounded = w;
    for (size_t k = 0; k < w.size(); ++k) rounded[k] += off[k];
    RoundingTask task;
    task.rows = rows;
    task.columns = columns;
    task.values = w;
    EXPECT_FALSE(errors.relative(task, rounded));
    task.reads = &reads;
    const double expected = plain(w, rounded, reads.gram, rows, columns, rows > TaskErrors::kRows ? 2 : 1);
    EXPECT_NEAR(errors.relative(task, rounded).value(), expected, 1e-4 * expected) << rows;
  }
}

TEST(TaskErrors, OfAStackThoseThatRowsReached) {
  run::Engine engine(engine_options());
  TaskErrors errors(engine);
  const int64_t columns = 16, rows = 5;
  calibrate::TapSums reads;
  reads.tap.columns = columns;
  reads.tap.matrices = 2;
  reads.counts = {0, 60};
  reads.gram = std::vector<float>(static_cast<size_t>(columns * columns));
  const std::vector<float> seen = moments_of(activations(60, columns, 8), 60, columns);
  reads.gram.insert(reads.gram.end(), seen.begin(), seen.end());
  EXPECT_TRUE(reads.gram_of(0).empty());
  EXPECT_EQ(reads.rows_of(1), 60);
  const std::vector<float> w = normals(2 * rows * columns, 9);
  std::vector<float> rounded = w;
  for (int64_t k = 0; k < rows * columns; ++k) {
    rounded[static_cast<size_t>(k)] = 0;  // nobody reads it
    rounded[static_cast<size_t>(rows * columns + k)] += 0.01F * static_cast<float>(k % 3);
  }
  RoundingTask task;
  task.matrices = 2;
  task.rows = rows;
  task.columns = columns;
  task.values = w;
  task.reads = &reads;
  const std::vector<float> last(w.begin() + rows * columns, w.end()),
      last_rounded(rounded.begin() + rows * columns, rounded.end());
  const double expected = plain(last, last_rounded, seen, rows, columns, 1);
  EXPECT_NEAR(errors.relative(task, rounded).value(), expected, 1e-4 * expected);
}

}  // namespace
}  // namespace lumen::model::compress

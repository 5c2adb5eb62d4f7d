// Orthogonal matrices for rotations of spaces. Proved by tests/model/compress/equivalent_transform/rules_test.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/equivalence/hadamard.h"

namespace lumen::model::compress {

class Rotation {
 public:
  // diag(signs) H / sqrt(n): fast. Signs are a function of (seed, index). Error when no H of order n is known.
  static Rotation hadamard(int64_t n, uint32_t seed);
  // H / sqrt(n), without signs: the matrix of online rotations.
  static Rotation plain_hadamard(int64_t n);
  // Uniform (Haar) random: a normal random matrix, orthogonalized.
  static Rotation random(int64_t n, uint32_t seed);
  // Any matrix [n, n], row-major, for example a learned one. Error when R R^T is not I within 1e-6.
  static Rotation given(int64_t n, std::vector<double> matrix);

  int64_t width() const { return n_; }
  void apply(std::span<double> row) const;       // row := row R
  void apply_all(std::span<double> rows) const;  // the same for several consecutive rows
  void undo(std::span<double> row) const;        // row := row R^T
  std::vector<double> matrix() const;            // [n, n], row-major

 private:
  explicit Rotation(int64_t n) : n_(n) {}
  int64_t n_ = 0;
  std::vector<double> matrix_, signs_;      // matrix_: of given()
  std::vector<graph::SignMatrix> factors_;  // of a Hadamard matrix, with signs_
};

}  // namespace lumen::model::compress

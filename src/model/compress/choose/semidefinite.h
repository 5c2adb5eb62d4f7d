// Makes pair terms consistent: measured differences of losses are noisy, and a solver would exploit pairs that seem to
// cancel more than errors can. Proved by tests/model/compress/choose/semidefinite_test.cpp.
#pragma once

#include "model/compress/choose/problem.h"
#include "model/linear/matrix.h"

namespace lumen::model::compress {

// The nearest symmetric matrix (Frobenius) without eigenvalues below `floor`.
linear::Matrix eigenvalue_floor(const linear::Matrix& symmetric, double floor = 0);

// Scores and pair terms of a block are read as half the quadratic form of a matrix M: M_aa is twice the score of
// candidate a, but at least 0, M_ab the term of a pair. M is made positive semidefinite; entries between two candidates
// of one item, which are never used, are chosen to change the others as little as possible. Rows and columns are then
// scaled to restore the diagonal: scores keep their values (the linear part of a loss may make them negative), and pair
// terms only shrink. Returns the largest change of a term.
double make_semidefinite(ChoiceBlock& block);

}  // namespace lumen::model::compress

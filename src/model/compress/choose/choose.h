// Chooses a candidate for every weight under a budget: a multiple-choice knapsack problem, solved exactly where
// possible. Pure arithmetic, independent of models, formats and devices.
//
// May include: base, model/linear.
#pragma once

#include "model/compress/choose/bit_classes.h"
#include "model/compress/choose/budget.h"
#include "model/compress/choose/problem.h"
#include "model/compress/choose/semidefinite.h"
#include "model/compress/choose/solve.h"

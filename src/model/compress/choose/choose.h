// The choice of a candidate for every weight under a budget: a multiple-choice problem, solved exactly where that can
// be done, and what goes with it. Pure arithmetic: nothing here knows a model, a format or a device.
//
// May include: base, model/linear.
#pragma once

#include "model/compress/choose/bit_classes.h"
#include "model/compress/choose/budget.h"
#include "model/compress/choose/problem.h"
#include "model/compress/choose/semidefinite.h"
#include "model/compress/choose/solve.h"

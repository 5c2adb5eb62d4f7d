// Learned rotations (SpinQuant, Liu et al. 2024, arXiv 2405.16406): a model computes the same under all of them, but
// the cost of rounding its weights to a format differs. Two costs: the rounding errors of the weights themselves, and
// the loss of the model with rounded weights.
//
// May include: base, base/threads, graph/ir, model/arch, model/calibrate, model/compress,
// model/compress/equivalent_transform, model/compress/reconstruction, model/compress/round, run/engine.
#pragma once

#include "model/compress/rotate/cayley.h"
#include "model/compress/rotate/learn_rotations.h"
#include "model/compress/rotate/rotated_weights.h"
#include "model/compress/rotate/rounding_error.h"
#include "model/compress/rotate/token_loss.h"

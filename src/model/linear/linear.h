// Linear algebra: dense matrices in double, and low-rank decompositions of weights.
//
// May include: base, base/threads, graph/ir, model/arch, run/device, run/engine.
#pragma once

#include "model/linear/decomposition.h"
#include "model/linear/matrix.h"

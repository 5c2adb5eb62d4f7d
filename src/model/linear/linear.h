// Linear algebra: dense matrices in double, and decompositions of weights into factors of low rank.
//
// May include: base, base/threads, graph/ir, model/arch, run/device, run/engine.
#pragma once

#include "model/linear/decomposition.h"
#include "model/linear/matrix.h"

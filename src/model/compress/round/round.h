// Activation-aware rounding of weights: factors of the second moments of activations, and rounding with error feedback
// by them (GPTQ), for any number format.
//
// May include: base, base/threads, graph/ir, model/calibrate, run/engine, run/engine/feedback.
#pragma once

#include "model/compress/round/cholesky.h"
#include "model/compress/round/gptq.h"
#include "model/compress/round/output_error.h"

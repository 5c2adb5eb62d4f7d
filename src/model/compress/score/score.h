// Predicted costs of formats for a model: loss and time, for a choice under a budget.
//
// May include: base, base/sealed, graph/ir, model/arch, model/calibrate, model/compress, model/compress/round,
// model/compress/strategy, run/engine.
#pragma once

#include "model/compress/score/product_time.h"
#include "model/compress/score/score_file.h"
#include "model/compress/score/weight_scores.h"

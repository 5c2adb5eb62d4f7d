// Several criteria at once for what a format does to a weight: what its layer hands on, what attentions look at, what
// becomes of the largest numbers; and which formats a weight's shape speaks against (QuantX, arXiv 2505.07531).
//
// May include: base, graph/ir, graph/match, graph/pass, model/calibrate, model/compress, model/compress/score,
// number/facts, run/engine.
#pragma once

#include "model/compress/criteria/criteria_scores.h"

// Scores formats for a weight by several criteria: the layer's output error, attention divergence, and the error of the
// largest numbers; and excludes formats that do not suit the weight's distribution (QuantX, arXiv 2505.07531).
//
// May include: base, graph/ir, graph/match, graph/pass, model/calibrate, model/compress, model/compress/score,
// number/facts, run/engine.
#pragma once

#include "model/compress/criteria/criteria_scores.h"

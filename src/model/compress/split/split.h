// Weights whose most important columns are held in a format of more bits: which columns those are, models with such
// weights in parts, and what shares of columns would cost (high-impact parameter ratio, Pham et al. 2025).
//
// May include: base, graph/equivalence, graph/transform, model/arch, model/arch/checkpoint, model/calibrate,
// model/compress, model/compress/choose, model/compress/round, model/compress/strategy.
#pragma once

#include "model/compress/split/apply.h"
#include "model/compress/split/columns.h"
#include "model/compress/split/ratio_scores.h"

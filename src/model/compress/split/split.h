// Weights whose most important columns are stored in a format of more bits: choice of the columns, models with such
// weights in parts, and the predicted cost of column shares (high-impact parameter ratio, Pham et al. 2025). And
// mixtures whose experts are stored in formats by class.
//
// May include: base, base/threads, graph/equivalence, graph/transform, graph/transform/split_experts, model/arch,
// model/arch/checkpoint, model/calibrate, model/compress, model/compress/choose, model/compress/round,
// model/compress/strategy.
#pragma once

#include "model/compress/split/apply.h"
#include "model/compress/split/columns.h"
#include "model/compress/split/expert_classes.h"
#include "model/compress/split/expert_parts.h"
#include "model/compress/split/ratio_scores.h"

// Changes of a model's weights that keep what it computes, and make it easier to round: norms folded into the weights
// behind them, channels scaled, spaces rotated. Where they may be: graph/equivalence. Computed in f64, kept in f32.
//
// May include: base, base/threads, graph/equivalence, graph/ir, graph/match, model/arch.
#pragma once

#include "model/compress/rewrite/apply.h"
#include "model/compress/rewrite/clip.h"
#include "model/compress/rewrite/rotation.h"
#include "model/compress/rewrite/scale_rules.h"
#include "model/compress/rewrite/turn.h"

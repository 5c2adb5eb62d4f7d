// Equivalent transformations of a model's weights that make it easier to quantize: norms folded into the following
// weights, channels scaled (the rules of AWQ and SmoothQuant), spaces rotated (QuaRot). Their sites: graph/equivalence.
// Computed in f64, stored in f32.
//
// May include: base, base/threads, graph/equivalence, graph/ir, graph/match, model/arch.
#pragma once

#include "model/compress/equivalent_transform/apply.h"
#include "model/compress/equivalent_transform/clip.h"
#include "model/compress/equivalent_transform/rotated_lines.h"
#include "model/compress/equivalent_transform/rotation.h"
#include "model/compress/equivalent_transform/scale_rules.h"

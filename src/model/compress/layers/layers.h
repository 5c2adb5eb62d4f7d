// Rounds a model layer by layer, using its activations on a text: each layer's inputs are the outputs of the earlier,
// already rounded layers. One layer's weights are in memory at a time. Progress is kept in a folder next to the result,
// so a run that was killed at any moment resumes and gives the same bytes.
//
// May include: base, base/file, base/sealed, base/structured, base/threads, graph/ir, graph/transform, model/arch,
// model/calibrate, model/compress, model/compress/low_rank_correction, model/compress/prepare, model/compress/strategy,
// number/facts, run/engine/feedback.
#pragma once

#include "model/compress/layers/by_layers.h"

// A model rounded layer by layer, by what its layers read of a text: each layer's inputs are those that the layers
// before it give as they are rounded already. One layer's weights are held at a time; what is done is kept in a folder
// beside the result, so that a run that was ended at any moment goes on where it was, and gives the same bytes.
//
// May include: base, base/file, base/sealed, base/structured, base/threads, graph/ir, graph/transform, model/arch,
// model/calibrate, model/compress, model/compress/correct, model/compress/prepare, model/compress/strategy,
// number/facts, run/engine/feedback.
#pragma once

#include "model/compress/layers/by_layers.h"

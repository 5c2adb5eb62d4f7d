// Rounding learned by what a whole layer computes: a layer's rounded weights are moved, with the graph's own gradients,
// until the layer hands on what it would hand on unrounded. AutoRound, AdaRound, learned clipping and training of the
// weights themselves, each for any number format whose elements have codes of their own.
//
// May include: base, base/threads, graph/grad, graph/ir, graph/pass, graph/transform, model/calibrate, number/codec,
// number/format, run/engine.
// Offers: clip.h, learning.h.
#pragma once

#include "model/compress/recover/element_codes.h"
#include "model/compress/recover/learn.h"
#include "model/compress/recover/objective.h"

// Learned rounding with a layer's output error as loss: a layer's rounded weights are optimized by gradients until the
// layer's outputs approach the unrounded ones. AutoRound, AdaRound, learned clipping and training of the weights
// themselves, each for any number format with a code per element.
//
// May include: base, base/threads, graph/grad, graph/ir, graph/pass, graph/transform, model/calibrate, number/codec,
// number/format, run/engine.
// Offers: clip.h, learning.h.
#pragma once

#include "model/compress/reconstruction/element_codes.h"
#include "model/compress/reconstruction/learn.h"
#include "model/compress/reconstruction/objective.h"

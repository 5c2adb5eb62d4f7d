// Preparations (AWQ, SmoothQuant) that make weights easier to quantize before a strategy rounds them, and the user
// syntax of both.
//
// May include: base, model/calibrate, model/compress/equivalent_transform, model/compress/round,
// model/compress/strategy.
#pragma once

#include "model/compress/prepare/preparation.h"
#include "model/compress/prepare/rounding_method.h"

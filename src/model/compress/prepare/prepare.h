// What makes weights easier to round before a strategy rounds them, and how users name both.
//
// May include: base, model/calibrate, model/compress/rewrite, model/compress/round, model/compress/strategy.
#pragma once

#include "model/compress/prepare/preparation.h"
#include "model/compress/prepare/rounding_method.h"

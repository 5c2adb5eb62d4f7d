// Exact execution of format routines, one number at a time: the reference for kernels.
//
// May include: base, number/format.
#pragma once

#include "number/interpret/engine.h"

// Routines of formats executed exactly, one number at a time: the definition that kernels are compared with.
//
// May include: base, number/format.
#pragma once

#include "number/interpret/engine.h"

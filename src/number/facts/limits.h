// What a definition may cost those who use it: work for each element that is decoded, and code that kernels make of a
// block. Sizes of texts and records are bounded where they are read (number/read). Proved by
// tests/number/facts/limits_test.cpp.
#pragma once

#include "number/format/format.h"

namespace lumen {

// Scalar operations of one run of a routine, all loops counted; functions like exp count as many.
double operations_of(const Routine& r);

// For one element: what any definition may ask for, and what one that comes inside a file may.
constexpr double kMostDecode = 65536, kMostDecodeInFile = 1024;

// Whether kernels take a block of the format apart in straight code, lane by lane. A larger one, or one that takes more
// operations, is decoded in a loop, element by element, before anything multiplies with it: right, but slow.
bool unrolls(const Format& f);

}  // namespace lumen

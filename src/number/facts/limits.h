// Cost limits of a definition: work per decoded element, and the size of the kernel code for a block. Sizes of texts
// and records are bounded in the reader (number/read). Proved by tests/number/facts/limits_test.cpp.
#pragma once

#include "number/format/format.h"

namespace lumen {

// Scalar operations of one run of a routine, with loop trips; functions like exp count as several.
double operations_of(const Routine& r);

// Limits per element: for any definition, and for a definition embedded in a file.
constexpr double kMostDecode = 65536, kMostDecodeInFile = 1024;

// Whether kernels decode a block of the format in unrolled straight-line code, lane by lane. A larger block, or one
// that needs more operations, is dequantized in a loop, element by element, before the multiplication: correct, but
// slow.
bool unrolls(const Format& f);

}  // namespace lumen

// Replaces functions of a few bits by tables while a format is read. Proved by tests/number/codec_test.cpp.
#pragma once

#include "number/format/format.h"

namespace lumen::read {

// When decode computes exp or similar functions of one integer with few values (an entry of a field or an expression of
// it), replaces them by a table computed with the reference operations: all machines then give the same bits, and no
// element recomputes the function.
void tabulate(Format& f);

}  // namespace lumen::read

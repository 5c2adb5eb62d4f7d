// Functions of a few bits become tables while a format is read. Proved by tests/number/codec_test.cpp.
#pragma once

#include "number/format/format.h"

namespace lumen::read {

// Where decode computes exp and its kin from one whole number of few values alone, an entry of a field or what is made
// of it, it looks the result up instead, in a table of what the definition of the operations says: every machine then
// gives the same bits, and none computes them again for each element.
void tabulate(Format& f);

}  // namespace lumen::read

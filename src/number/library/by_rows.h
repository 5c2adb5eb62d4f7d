// Formats that can be written a row at a time. Proved by tests/number/by_rows_test.cpp.
#pragma once

#include "number/format/format.h"

namespace lumen {

// The format with what it stores once for a tensor or a tile stored once for each row, and fitted from that row: rows
// can then be written one by one. The format itself where it has neither; null where it has fields of several levels
// above the block, of which no single record of a row could be made.
FormatRef by_rows(const FormatRef& f);

}  // namespace lumen
